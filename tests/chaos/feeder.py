"""Keeps batches coming through the public API while its processes die."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from tests.chaos.installation import Installation
from tests.chaos.observer import Observer

CHAT = "/v1/chat/completions"
GIVE_UP_S = 180.0
AGAIN_S = 0.25


@dataclass(frozen=True)
class Line:
    """One line of input and, of the fake engine, the answer it must get."""

    custom_id: str
    prompt: str
    answer: str | None


@dataclass
class Submitted:
    """A batch as its owner knows it."""

    id: str
    lines: dict[str, Line]


@dataclass
class Feeder:
    """Submits a batch whenever fewer than `num_lines` lines are open, until told to stop.

    Attributes:
        name: Begins every custom id: what tells the lines of several feeders apart.
        key: Of whose project; the installation's own where it is empty.
    """

    installation: Installation
    observer: Observer
    model: str
    num_lines: int
    max_tokens: int | None = None
    name: str = ""
    key: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    batches: list[Submitted] = field(default_factory=list)

    async def run(self) -> None:
        while not self.stop.is_set():
            if 0 <= await self.observer.num_open() < self.num_lines:
                await self.submit()
            await asyncio.sleep(0.5)

    async def submit(self) -> Submitted:
        """Upload and create; repeated with the same idempotency keys until answered."""
        number = len(self.batches)
        lines = [self._line(number, k) for k in range(self.num_lines)]
        data = b"".join(self._wire(line) for line in lines)
        file = await self.post(
            "/v1/files", f"file-{number}", data={"purpose": "batch"}, files={"file": ("in", data)}
        )
        wanted = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
        batch = await self.post("/v1/batches", f"batch-{number}", json=wanted)
        done = Submitted(batch["id"], {line.custom_id: line for line in lines})
        self.batches.append(done)
        return done

    async def post(self, path: str, idempotency_key: str, **body: Any) -> Any:
        headers = {"Idempotency-Key": f"chaos-{idempotency_key}"}
        return (await self._request("POST", path, headers=headers, **body)).json()

    async def get(self, path: str) -> httpx.Response:
        return await self._request("GET", path)

    async def _request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        """As a patient client: no answer, 409 and 5xx are asked again."""
        said: object = None
        key = self.key or self.installation.key
        headers = {"Authorization": f"Bearer {key}", **(headers or {})}
        try:
            async with asyncio.timeout(GIVE_UP_S):
                while True:
                    try:
                        async with httpx.AsyncClient(timeout=30) as client:
                            reply = await client.request(
                                method, self.installation.url + path, headers=headers, **body
                            )
                        if reply.status_code < 400:
                            return reply
                        said = reply.text
                        assert reply.status_code >= 500 or reply.status_code in (409, 429), said
                    except httpx.TransportError as error:
                        said = error
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            raise AssertionError(f"{method} {path}: {said}") from None

    def _line(self, batch: int, number: int) -> Line:
        custom_id = f"{self.name}b{batch}-r{number}"
        if self.max_tokens is None:
            return Line(custom_id, f"fake:text={custom_id}", custom_id)
        return Line(custom_id, f"Tell a story about the number {number}.", None)

    def _wire(self, line: Line) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": line.prompt}],
        }
        if self.max_tokens is not None:
            # Of many lengths, so that lines do not end in waves.
            length = 1 + zlib.crc32(line.custom_id.encode()) % self.max_tokens
            body |= {"max_tokens": length, "temperature": 0}
        whole = {"custom_id": line.custom_id, "method": "POST", "url": CHAT, "body": body}
        return orjson.dumps(whole) + b"\n"
