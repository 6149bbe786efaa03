"""Shares of the database's connections: no project's requests can hold all of them.

Whose a transaction is, is known once the key of its request is (`service.asking`). A project may
have as many open as there are places free: one alone comes to half of them, and there is some left
for the next. Further ones wait, by turns of the projects. What no project asked for needs no place:
the look-up of a key, the loops, the dashboard. `SPARE` connections are never a project's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy.exc import TimeoutError as NoConnectionFree

from service.asking import asking
from service.turns import TooManyWait, Turns

SPARE: Final = 2
MAX_WAITING: Final = 256
"""Transactions of one project."""

_has_place: ContextVar[bool] = ContextVar("has_place", default=False)


class DatabaseShares:
    """The places at the connections of one pool.

    Args:
        num_connections: In the pool, at most.
        limit_s: How long a transaction may wait for a place.
    """

    def __init__(self, num_connections: int, limit_s: float) -> None:
        places = max(1, num_connections - SPARE)
        self._turns = Turns(places, max_waiting=MAX_WAITING, leaves_room=True)
        self._limit_s = limit_s

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for one transaction; one inside of another goes along with it.

        Raises:
            NoConnectionFree: The project has too many that wait, or none ended in time.
        """
        project_id = asking()
        if not project_id or _has_place.get():
            yield
            return
        place = self._turns.place(project_id)
        try:
            async with asyncio.timeout(self._limit_s):
                await place.__aenter__()
        except (TimeoutError, TooManyWait):
            raise NoConnectionFree("all that this project may have are in use") from None
        _has_place.set(True)
        try:
            yield
        finally:
            _has_place.set(False)
            await place.__aexit__(None, None, None)
