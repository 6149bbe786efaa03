"""What chat gets at engines that are not ours: the worst latency of late over its target.

    first token     the longest of the last seconds, and of those that still wait for one
    gaps            all but the worst twentieth of the last seconds
    whole answers   their time over that of a first token and their gaps

Only what the engine takes counts: the time in which a slow client holds a stream up does not. A
gateway tells it to the dispatchers of such engines (`batch.run.chat_room`), at once when chat
begins or becomes late.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from store.repositories import chat_report
from store.repositories.chat_report import ChatNow
from store.session import Database
from store.types import new_id

REPORT_S: Final = 0.5
RECENT_S: Final = 3.0
GAP_SHARE: Final = 0.95
MAX_SAMPLES: Final = 2000


@dataclass(eq=False)
class OpenChat:
    """One chat request at such an engine, from its begin to its end."""

    at: AtEngine
    began_s: float
    ttft_s: float
    tbt_s: float
    waits: bool = True
    """For its first token, which only a stream shows."""

    def note_first(self, now_s: float) -> None:
        """Its first token has come; a second one changes nothing."""
        if self.waits:
            self.waits = False
            self.at.note(self.at.firsts, now_s, (now_s - self.began_s) / self.ttft_s)

    def note_gap(self, now_s: float, gap_s: float) -> None:
        self.at.note(self.at.gaps, now_s, gap_s / self.tbt_s)

    def note_whole(self, now_s: float, num_tokens: int) -> None:
        """A whole answer has come, of so many tokens."""
        wanted_s = self.ttft_s + self.tbt_s * max(0, num_tokens - 1)
        self.at.note(self.at.firsts, now_s, (now_s - self.began_s) / wanted_s)

    def end(self) -> None:
        self.at.open.discard(self)


@dataclass(eq=False)
class AtEngine:
    """Chat at one engine, as this gateway sees it."""

    changed: Callable[[], None]
    open: set[OpenChat] = field(default_factory=set)
    firsts: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    gaps: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))

    def note(self, samples: deque[tuple[float, float]], now_s: float, ratio: float) -> None:
        """A latency over its target."""
        samples.append((now_s, ratio))
        if ratio > 1.0:
            self.changed()

    def now(self, now_s: float) -> ChatNow:
        firsts = [
            *_since(self.firsts, now_s - RECENT_S),
            *((now_s - one.began_s) / one.ttft_s for one in self.open if one.waits),
        ]
        gaps = sorted(_since(self.gaps, now_s - RECENT_S))
        gap = gaps[int(GAP_SHARE * (len(gaps) - 1))] if gaps else 0.0
        return ChatNow(len(self.open), max([gap, *firsts]))


class ChatPressure:
    """All of it, of one process of a gateway.

    Attributes:
        due: Set when the next report should not wait.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.due = asyncio.Event()
        self._now_s = now_s
        self._gateway = new_id("gw_")
        self._engines: dict[str, AtEngine] = {}
        self._was_open: set[str] = set()

    def begin(self, url: str, targets_s: tuple[float, float], *, stream: bool) -> OpenChat:
        """A chat request is sent to an engine."""
        at = self._engines.setdefault(url, AtEngine(self.due.set))
        if not at.open:
            self.due.set()
        chat = OpenChat(at, self._now_s(), *targets_s, waits=stream)
        at.open.add(chat)
        return chat

    def now(self) -> dict[str, ChatNow]:
        """By engine: those that have chat, or had some at the last look."""
        now_s = self._now_s()
        found = {url: at.now(now_s) for url, at in self._engines.items()}
        live = {url for url, one in found.items() if one.num_open or one.pressure}
        told = {url: one for url, one in found.items() if url in live | self._was_open}
        self._was_open = live
        for url in found.keys() - live - told.keys():
            del self._engines[url]
        return told

    async def report(self, database: Database) -> None:
        """Write what changed for the dispatchers."""
        self.due.clear()
        found = self.now()
        if found:
            async with database.unit_of_work() as session:
                await chat_report.write(session, self._gateway, found)


def _since(samples: deque[tuple[float, float]], since_s: float) -> list[float]:
    while samples and samples[0][0] < since_s:
        samples.popleft()
    return [ratio for _, ratio in samples]
