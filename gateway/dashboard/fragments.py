"""The living parts of each page: read once, rendered once, shared by the page and every watcher.

A fragment is an element with an id. Fragments hold nothing of a session (no tokens), so one
reading serves all who look at the same page.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from gateway.dashboard.resources import Resources


@dataclass(frozen=True)
class Fragments:
    """What a page shows at one instant.

    Attributes:
        whole: Element id -> HTML of the parts that change as one.
        listed: Element id -> HTML of the items of a list, in order.
        list_id: The element that holds the list, or empty.
        list_html: That element with all its items.
        facts: What the page says once, outside of living parts (title, whether a next page is).
        statuses: Name -> status, for what is announced to a screen reader.
    """

    whole: Mapping[str, str]
    listed: Mapping[str, str] = field(default_factory=dict)
    list_id: str = ""
    list_html: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)


class LivingPage(Protocol):
    """What a page shows; equal ones are read once for all."""

    @property
    def fresh_s(self) -> float:
        """How long a reading serves."""
        ...

    async def read(self, resources: Resources) -> Fragments:
        """Read what the page shows now, and render each of its fragments."""
        ...


@dataclass
class SharedReadings:
    """The last reading of each page that somebody looks at.

    Invariant: however many watch, a page is read at most once per `fresh_s`.

    Attributes:
        resources: What pages are read from.
        num_streams: How many streams each key has open.
    """

    resources: Resources
    _last: dict[LivingPage, tuple[float, Fragments]] = field(default_factory=dict)
    _locks: dict[LivingPage, asyncio.Lock] = field(default_factory=dict)
    num_streams: Counter[str] = field(default_factory=Counter)

    async def counted(
        self, key_id: str, stream: AsyncGenerator[bytes, None]
    ) -> AsyncIterator[bytes]:
        """A key's stream, which counts among its own while it lasts."""
        self.num_streams[key_id] += 1
        try:
            async with aclosing(stream):
                async for part in stream:
                    yield part
        finally:
            self.num_streams[key_id] -= 1
            if not self.num_streams[key_id]:
                del self.num_streams[key_id]

    async def read(self, living: LivingPage, *, anew: bool = False) -> Fragments:
        """What the page shows now, or showed a moment ago.

        Args:
            living: The page to read.
            anew: Whoever has just done something must see it: do not use an older reading.
        """
        async with self._locks.setdefault(living, asyncio.Lock()):
            clock = self.resources.clock
            known = self._last.get(living)
            is_fresh = known is not None and clock.monotonic() - known[0] < living.fresh_s
            if known is not None and is_fresh and not anew:
                return known[1]
            began_s = clock.monotonic()
            fragments = await living.read(self.resources)
            self._last[living] = (began_s, fragments)
            self._forget_stale(began_s)
            return fragments

    def remembered(self) -> list[LivingPage]:
        """Those that somebody has read of late."""
        return list(self._last)

    def _forget_stale(self, now_s: float) -> None:
        """Views that nobody has read for a while are dropped, so that none is kept for ever."""
        for living in [v for v, (at_s, _) in self._last.items() if now_s - at_s > 30]:
            lock = self._locks.get(living)
            if lock is None or not lock.locked():
                self._last.pop(living, None)
                self._locks.pop(living, None)
