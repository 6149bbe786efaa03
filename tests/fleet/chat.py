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
class Lost:
    """A part that is lost: from before it is killed until nobody is sent there any more."""

    from_s: float = field(default_factory=time.monotonic)
    until_s: float = math.inf

    def over(self) -> None:
        """It is known by now: who comes later is sent elsewhere."""
        self.until_s = time.monotonic()

    def meets(self, began_s: float, ended_s: float) -> bool:
        """Whether a call of this time may have been there."""
        return began_s <= self.until_s and ended_s >= self.from_s


@dataclass
class Losses:
    """What was killed: gateways by address, and engines."""

    gateways: dict[str, list[Lost]] = field(default_factory=dict)
    engines: list[Lost] = field(default_factory=list)

    def gateway(self, url: str) -> Lost:
        """This gateway is about to be killed."""
        self.gateways.setdefault(url, []).append(lost := Lost())
        return lost

    def engine(self) -> Lost:
        """An engine is about to be killed."""
        self.engines.append(lost := Lost())
        return lost

    def excuse(self, gateway: str, began_s: float, ended_s: float, *, token: bool) -> bool:
        """Whether a call had begun on a part that was lost meanwhile."""
        if any(one.meets(began_s, ended_s) for one in self.gateways.get(gateway, ())):
            return True
        return token and any(one.meets(began_s, ended_s) for one in self.engines)


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
