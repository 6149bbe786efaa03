"""Another caller beside the fuzzer: how long it waits for a word while odd requests are served."""

from __future__ import annotations

import asyncio
import time

import httpx

LONGEST_WAIT_S = 20.0
"""Of a stream on a busy machine of two cores, with as many others as the engine has slots."""

NUM_TOKENS = 24
PAUSE_S = 0.2


class Bystander:
    """Reads one short stream after the other, as a person of another project does."""

    def __init__(self, url: str, key: str, model: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._headers = {"authorization": f"Bearer {key}"}
        self._body = {
            "model": model,
            "messages": [{"role": "user", "content": "Count from one to twenty."}],
            "max_completion_tokens": NUM_TOKENS,
            "stream": True,
        }
        self._longest_s = 0.0
        self._odd: set[str] = set()

    def take(self) -> tuple[float, list[str]]:
        """The longest wait in seconds, and what was odd, since this was last asked."""
        taken = self._longest_s, sorted(self._odd)
        self._longest_s, self._odd = 0.0, set()
        return taken

    async def read(self) -> None:
        """Until it is cancelled."""
        async with httpx.AsyncClient(timeout=120) as http:
            while True:
                await self._read_one(http)
                await asyncio.sleep(PAUSE_S)

    async def _read_one(self, http: httpx.AsyncClient) -> None:
        since_s = time.monotonic()
        try:
            async with http.stream(
                "POST", self._url, json=self._body, headers=self._headers
            ) as reply:
                if reply.status_code != 200:
                    self._odd.add(f"status {reply.status_code}")
                async for line in reply.aiter_lines():
                    if line.startswith("data: "):
                        now_s = time.monotonic()
                        self._longest_s = max(self._longest_s, now_s - since_s)
                        since_s = now_s
                        if '"error"' in line:
                            self._odd.add(line[:300])
        except httpx.TransportError as error:
            self._odd.add(type(error).__name__)
        finally:
            self._longest_s = max(self._longest_s, time.monotonic() - since_s)
