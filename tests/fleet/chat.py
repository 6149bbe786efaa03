"""Chat over a day in short: calls come along a wave, and each says how it ended."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.fleet.installation import Gateways

LIMIT_S = 120.0


@dataclass
class Losses:
    """What was killed, and when: by the gateway's address, and of engines the instants."""

    gateways: dict[str, list[float]] = field(default_factory=dict)
    engines: list[float] = field(default_factory=list)

    def excuse(self, gateway: str, began_s: float, ended_s: float, *, token: bool) -> bool:
        """Whether a call had begun on a part that was lost meanwhile."""
        lost = self.gateways.get(gateway, ())
        if any(began_s <= at_s <= ended_s for at_s in lost):
            return True
        return token and any(began_s <= at_s <= ended_s for at_s in self.engines)


@dataclass
class Chat:
    """Calls made, and how they ended.

    Attributes:
        ends: By `answered`, `excused` (it had begun on a lost part) or what went wrong.
        broken: Of the last kind: what was seen.
    """

    gateways: Gateways
    losses: Losses
    models: list[str]
    headers: dict[str, str]
    ends: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    num_without_gateway: int = 0

    async def run(
        self, for_s: float, rate_per_s: float, over: asyncio.Event, seed: int = 1
    ) -> None:
        """Waves of this length, from a fifth of the rate to all of it and back, until it is over.

        Returns when all calls have ended.
        """
        generator = random.Random(seed)
        began_s = time.monotonic()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with (
            httpx.AsyncClient(headers=self.headers, timeout=LIMIT_S, limits=limits) as http,
            asyncio.TaskGroup() as group,
        ):
            number = 0
            while (passed_s := time.monotonic() - began_s) < for_s or not over.is_set():
                share = 0.6 - 0.4 * math.cos(2 * math.pi * passed_s / for_s)
                await asyncio.sleep(generator.expovariate(rate_per_s * share))
                group.create_task(self._call(http, number, generator.random()))
                number += 1

    async def _call(self, http: httpx.AsyncClient, number: int, drawn: float) -> None:
        url = self.gateways.next()
        if url is None:
            self.num_without_gateway += 1
            return
        model = self.models[int(drawn * len(self.models))]
        prompt = f"call {number} fake:tokens=20 fake:token_ms=50"
        body = {
            "model": model,
            "stream": True,
            "max_tokens": 20,
            "messages": [{"role": "user", "content": prompt}],
        }
        began_s, data, why = time.monotonic(), b"", ""
        try:
            async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
                async for piece in reply.aiter_bytes():
                    data += piece
                if reply.status_code != 200:
                    why = f"status {reply.status_code}"
        except httpx.HTTPError as error:
            why = type(error).__name__
        if b'"error"' in data and not why:
            why = "an error event"
        if not why and not data.endswith(b"data: [DONE]\n\n"):
            why = "no end"
        token = b'"content":"' in data
        if not why:
            self.ends["answered"] += 1
        elif self.losses.excuse(url, began_s, time.monotonic(), token=token):
            self.ends["excused"] += 1
        else:
            self.ends[why] += 1
            self.broken.append(f"call {number} by {url}: {why}: {data[-300:]!r}")
