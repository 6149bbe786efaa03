"""Who follows background responses: one query a process looks for all of them.

Clients ask this object and not the database. A response is read when the state of its row has
changed, once for all that follow it, and by turns of the projects: however many follow, or finish
at once, other requests keep the database's connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import RateLimited
from service.asking import asks_for
from service.clock import Clock
from service.turns import Turns
from store.repositories import response as responses
from store.session import Database

POLL_INTERVAL_S: Final = 0.25
"""How often it is looked whether responses have gone on."""

MAX_FOLLOWERS: Final = 100
"""Of one project, at each process of the gateway."""

NUM_READING: Final = 2
"""Responses that are read at once."""

Seen = TypeVar("Seen")
Read = Callable[[AsyncSession], Awaitable[Seen]]

logger = logging.getLogger(__name__)


class Followed(Generic[Seen]):
    """A response that somebody follows.

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
        """Note the state of its row."""
        if state != self.state:
            self.state = state
            self.version += 1


class Followers(Generic[Seen]):
    """Those of one process.

    Invariant: it looks exactly while somebody follows.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
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
                f"This project follows {MAX_FOLLOWERS} background responses, which is its limit. "
                "Please try again when one has ended."
            )

    @contextmanager
    def following(
        self, project_id: str, response_id: str, load: Read[Seen]
    ) -> Iterator[Followed[Seen]]:
        """Follow a response for as long as the block runs."""

        async def read() -> Seen:
            async with self._turns.place(project_id), self._database.unit_of_work() as session:
                return await load(session)

        name = (project_id, response_id)
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
            ids = {response_id for _, response_id in self._followed}
            try:
                async with self._database.unit_of_work() as session:
                    states = await responses.states(session, ids)
            except (SQLAlchemyError, OSError) as error:
                logger.warning("followed responses not looked for: %s", type(error).__name__)
            except Exception:  # else those that follow would wait for ever
                logger.exception("followed responses not looked for")
            else:
                for (_, response_id), followed in self._followed.items():
                    if response_id in ids:
                        followed.note(states.get(response_id, "deleted"))
            await self._clock.sleep(POLL_INTERVAL_S)

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
