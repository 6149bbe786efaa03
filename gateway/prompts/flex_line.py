"""Flex requests that wait for room: one line a model, in which projects take turns.

    join ── its round and its place ──► first in line ── looks every 0.1 s ──► room, or time is up

A round has one request of each project. So whoever brings a thousand stands behind the next request
of everybody else, not before it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from api.errors import NoFlexRoom

T = TypeVar("T")

POLL_S: Final = 0.1
"""How often the first in line looks for room: engines report it every few seconds."""

NUM_SEEN: Final = 16
"""How many of the last that found room tell how long others will wait."""

PLACE: Final = "x-coserve-flex-place"
EXPECTED: Final = "x-coserve-flex-expected-wait"

MOST_S: Final = 120
"""The longest that clients are told to stay away; official ones take no longer time."""


@dataclass(order=True, frozen=True)
class Waiting:
    """One request in line; they are ordered as they are served."""

    round: int
    number: int
    project_id: str = field(compare=False)
    is_first: asyncio.Event = field(compare=False, default_factory=asyncio.Event)


class FlexLine:
    """The line of one model.

    Invariant: `_all` is sorted, and the first of it alone has `is_first` set. `_served` are the
    projects that found room in `_round`, the newest round in which one did.

    Args:
        monotonic: Seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._all: list[Waiting] = []
        self._numbers = itertools.count()
        self._round = 0
        self._served: set[str] = set()
        self._since_s = 0.0
        self._found_room: deque[float] = deque(maxlen=NUM_SEEN)

    def __len__(self) -> int:
        return len(self._all)

    @contextmanager
    def standing(self, project_id: str) -> Iterator[Waiting]:
        """Stand in line while the block runs."""
        rounds = [one.round + 1 for one in self._all if one.project_id == project_id]
        first = self._round + (project_id in self._served)
        me = Waiting(max([first, *rounds[-1:]]), next(self._numbers), project_id)
        if not self._all:
            self._since_s = self._monotonic()
            self._found_room.clear()
        insort(self._all, me)
        self._call_first()
        try:
            yield me
        finally:
            self._all.remove(me)
            self._call_first()

    async def room(self, me: Waiting, find_room: Callable[[], T]) -> T:
        """What `find_room` finds, once this one is first and there is room for it.

        Args:
            me: Stands in this line.
            find_room: Raises `NoFlexRoom` while there is none.
        """
        while True:
            await me.is_first.wait()
            with suppress(NoFlexRoom):
                found = find_room()
                self._note(me)
                return found
            await asyncio.sleep(POLL_S)

    def place(self, me: Waiting) -> int:
        """1 for the next to be served."""
        return self._all.index(me) + 1

    def expected_s(self, place: int) -> float | None:
        """Seconds until somebody at this place has room, by those that found it since they queued.

        None where nobody has, yet.
        """
        seen = self._found_room
        if not seen:
            return None
        whole = len(seen) == NUM_SEEN
        since_s, num = (seen[0], len(seen) - 1) if whole else (self._since_s, len(seen))
        return place * (self._monotonic() - since_s) / num

    def told(self, place: int) -> dict[str, str]:
        """A place as headers: the place, and whole seconds of the expected wait if it is known."""
        expected_s = self.expected_s(place)
        return {PLACE: str(place)} | ({} if expected_s is None else {EXPECTED: _whole(expected_s)})

    def refusal(self) -> dict[str, str]:
        """Headers for somebody who is refused: where they would stand, and when to come again."""
        told = self.told(len(self) + 1)
        wait = told.get(EXPECTED)
        return told if wait is None else told | {"retry-after": str(min(int(wait), MOST_S))}

    def comment(self, me: Waiting) -> bytes:
        """Where a request stands, as a comment of an event stream."""
        place = self.place(me)
        expected_s = self.expected_s(place)
        about = "" if expected_s is None else f", about {_whole(expected_s)} s"
        return f": waiting for spare capacity, place {place}{about}\n\n".encode()

    def _note(self, found: Waiting) -> None:
        if found.round > self._round:
            self._round = found.round
            self._served.clear()
        self._served.add(found.project_id)
        self._found_room.append(self._monotonic())

    def _call_first(self) -> None:
        for index, one in enumerate(self._all[:2]):
            if index == 0:
                one.is_first.set()
            else:
                one.is_first.clear()


def _whole(seconds: float) -> str:
    return str(max(1, round(seconds)))
