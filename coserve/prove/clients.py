"""The clients of a run: chats that are sent at their instants whatever becomes of earlier ones."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import aiohttp

from coserve.prove.load import Chat, row

DRAIN_S: Final = 60.0
"""How long chats may take after their phase."""


@dataclass(slots=True)
class Seen:
    """What the client of one chat saw; seconds.

    Attributes:
        number: Of the chat.
        ttft_s: From the instant it should have been sent to its first text; None without any.
        gaps_s: Between two reads that brought text.
        error: Why it failed; empty if it did not.
    """

    number: int
    ttft_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go.

    Attributes:
        base_url: With `/v1`.
        model: Which model is asked.
        key: Empty where none is needed.
        priorities: Chats and rows say so in SGLang's field `priority`.
    """

    base_url: str
    model: str
    key: str = ""
    priorities: bool = False

    def session(self) -> aiohttp.ClientSession:
        """Connections without a limit: a pool's would be a queue of its own."""
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=600.0)
        connector = aiohttp.TCPConnector(limit=0)
        return aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector)

    def body(self, given: dict[str, Any], *, online: bool) -> dict[str, Any]:
        return given | ({"priority": 100 if online else -100} if self.priorities else {})


async def send(server: Server, todo: Sequence[Chat], system: str, begin_s: float) -> list[Seen]:
    """Send chats at their instants, and wait for their answers.

    Args:
        server: Where to.
        todo: In order of their instants.
        system: Its name, which begins every prompt.
        begin_s: The instant, of the chats' clock, that is now.
    """
    opened_s = time.monotonic()
    seen = [Seen(chat.number) for chat in todo]
    last_s = (todo[-1].at_s - begin_s) if todo else 0.0
    async with server.session() as session:
        try:
            async with asyncio.timeout(last_s + DRAIN_S), asyncio.TaskGroup() as group:
                for one, chat in zip(seen, todo, strict=True):
                    due_s = opened_s + chat.at_s - begin_s
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                    group.create_task(_chat(session, server, chat, system, one, due_s))
        except TimeoutError:
            for one in seen:
                if one.ttft_s is None:
                    one.error = one.error or f"no answer {DRAIN_S:.0f} s after the phase"
    return seen


async def _chat(
    session: aiohttp.ClientSession,
    server: Server,
    chat: Chat,
    system: str,
    seen: Seen,
    due_s: float,
) -> None:
    body = server.body(chat.body(server.model, system), online=True)
    came: list[float] = []
    try:
        async with session.post(f"{server.base_url}/chat/completions", json=body) as answer:
            if answer.status != 200:
                seen.error = f"{answer.status}: {(await answer.text())[:200]}"
                return
            async for line in answer.content:
                if _has_text(line):
                    came.append(time.monotonic())
                    seen.ttft_s = came[0] - due_s
    except aiohttp.ClientError as lost:
        seen.error = str(lost) or type(lost).__name__
    finally:
        seen.gaps_s = [after - before for before, after in pairwise(came)]
        if not came and not seen.error:
            seen.error = "an answer without text"


def _has_text(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    choices = json.loads(line[6:]).get("choices") or []
    delta = choices[0].get("delta", {}) if choices else {}
    return bool(delta.get("content") or delta.get("reasoning_content"))


class RawRows:
    """Rows as plain requests, always so many at once: what a batch is without a batch service.

    Attributes:
        num_tokens: Of prompts and answers, of the rows answered so far.
    """

    def __init__(self, server: Server, at_once: int) -> None:
        self._server = server
        self._at_once = at_once
        self._next = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.num_tokens = 0
        self.error = ""

    async def __aenter__(self) -> RawRows:
        self._session = self._server.session()
        self._tasks = [asyncio.ensure_future(self._send()) for _ in range(self._at_once)]
        return self

    async def __aexit__(self, *raised: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _send(self) -> None:
        url = f"{self._server.base_url}/chat/completions"
        while True:
            body = self._server.body(row(self._server.model, self._next), online=False)
            self._next += 1
            try:
                async with self._session.post(url, json=body) as answer:
                    if answer.status == 200:
                        self.num_tokens += (await answer.json())["usage"]["total_tokens"]
                        continue
                    self.error = f"{answer.status}: {(await answer.text())[:200]}"
            except aiohttp.ClientError as lost:
                self.error = str(lost) or type(lost).__name__
            await asyncio.sleep(0.5)  # a server that refuses must not be flooded
