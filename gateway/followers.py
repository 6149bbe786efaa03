"""Who follows background responses, or the results of batches: one query a process for all.

Clients ask this object and not the database. What is followed is read when its state has changed, a
response once for all that follow it and by turns of the projects: however many follow, or finish at
once, other requests keep the database's connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import RateLimited
from service.asking import asks_for
from service.clock import Clock
from service.turns import Turns
from store.session import Database

POLL_INTERVAL_S: Final = 0.25
"""How often it is looked whether what is followed has gone on."""

MAX_FOLLOWERS: Final = 100
"""Of one project, at each process of the gateway."""

NUM_READING: Final = 2
"""Followed things that are read at once."""

Seen = TypeVar("Seen")
Read = Callable[[AsyncSession], Awaitable[Seen]]
States = Callable[[AsyncSession, Collection[str]], Awaitable[dict[str, str]]]
"""The state of each of these; of one that is gone there is none."""

logger = logging.getLogger(__name__)


class Followed(Generic[Seen]):
    """What somebody follows.

    Attributes:
        version: Another one whenever it has gone on.
        num: How many follow it.
    """

    def __init__(self, read: Callable[[], Awaitable[Seen]]) -> None:
        self.version = 0
        self.num = 0
        self.state: str | None = None
        self._read = read
        self._reading = asyncio.Lock()
        self._last: tuple[int, Seen] | None = None

    async def seen(self) -> Seen:
        """As it is now: read once for all who ask for one version."""
        async with self._reading:
            if self._last is None or self._last[0] != self.version:
                version = self.version
                self._last = (version, await self._read())
            return self._last[1]

    def note(self, state: str) -> None:
        """Note its state."""
        if state != self.state:
            self.state = state
            self.version += 1


class Followers(Generic[Seen]):
    """Those of one process.

    Invariant: it looks exactly while somebody follows.

    Args:
        database: Where the states are.
        clock: Says when to look.
        states: Reads them.
        what: What is followed, in words.
    """

    def __init__(self, database: Database, clock: Clock, states: States, what: str) -> None:
        self._states = states
        self._what = what
        self._database = database
        self._clock = clock
        self._followed: dict[tuple[str, str], Followed[Seen]] = {}
        self._num_by_project: Counter[str] = Counter()
        self._turns = Turns(NUM_READING, max_waiting=MAX_FOLLOWERS)
        self._polling: asyncio.Task[None] | None = None

    def check(self, project_id: str) -> None:
        """Refuse one more.

        Raises:
            RateLimited: As many of the project follow as may.
        """
        if self._num_by_project[project_id] >= MAX_FOLLOWERS:
            raise RateLimited(
                f"This project follows {MAX_FOLLOWERS} {self._what}, which is its limit. "
                "Please try again when one has ended."
            )

    @contextmanager
    def following(
        self, project_id: str, followed_id: str, load: Read[Seen]
    ) -> Iterator[Followed[Seen]]:
        """Follow a response or a batch for as long as the block runs."""

        async def read() -> Seen:
            async with self._turns.place(project_id), self._database.unit_of_work() as session:
                return await load(session)

        name = (project_id, followed_id)
        followed = self._followed.setdefault(name, Followed(read))
        followed.num += 1
        self._num_by_project[project_id] += 1
        if self._polling is None:
            self._polling = asyncio.ensure_future(self._poll())
        try:
            yield followed
        finally:
            followed.num -= 1
            if not followed.num:
                del self._followed[name]
            self._num_by_project[project_id] -= 1
            if not self._num_by_project[project_id]:
                del self._num_by_project[project_id]

    async def _poll(self) -> None:
        asks_for("")  # for all projects, whoever's request began it
        try:
            await self._poll_while_followed()
        finally:
            self._polling = None

    async def _poll_while_followed(self) -> None:
        while self._followed:
            ids = {followed_id for _, followed_id in self._followed}
            try:
                async with self._database.unit_of_work() as session:
                    states = await self._states(session, ids)
            except (SQLAlchemyError, OSError) as error:
                logger.warning("followed %s not looked for: %s", self._what, type(error).__name__)
            except Exception:  # else those that follow would wait for ever
                logger.exception("followed %s not looked for", self._what)
            else:
                for (_, followed_id), followed in self._followed.items():
                    if followed_id in ids:
                        followed.note(states.get(followed_id, "deleted"))
            await self._clock.sleep(POLL_INTERVAL_S)

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
