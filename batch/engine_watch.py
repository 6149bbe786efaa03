"""What a dispatcher knows about its engine: whether it is there, its model, and how full it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from batch import window
from batch.clock import Clock
from batch.window import EngineSignals
from engine_adapter.client.base import EngineClient, EngineFacts
from engine_adapter.wire.errors import ApiError

logger = logging.getLogger(__name__)

LOOK_S = 1.0
ANSWER_LIMIT_S = 5.0
"""An engine that answers no question for this long counts as gone, even if it is connected."""

FIRST_PAUSE_S = 0.25
MAX_PAUSE_S = 2.0


class EngineWatch:
    """Follows one engine.

    Attributes:
        up: Whether the engine is there.
        suspect: A call was lost, and the engine has not answered since.
        model: The id of the model it serves, while it was last up.
        size: How many rows to keep there.
    """

    def __init__(
        self, engine: EngineClient, clock: Clock, *, max_in_flight: int, changed: asyncio.Event
    ) -> None:
        self.up = False
        self.suspect = False
        self.model = ""
        self.size = 0
        self._changed = changed
        self._engine = engine
        self._clock = clock
        self._max_in_flight = max_in_flight
        self._num_refused = 0
        self._asked = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether rows may be sent."""
        return self.up and not self.suspect

    def note_refused(self) -> None:
        """A call was turned away because the engine is full."""
        self._num_refused += 1

    def note_lost(self) -> None:
        """A call was lost: send no more, and ask at once whether the engine is still there."""
        self.suspect = True
        self._asked.set()

    async def run(self) -> None:
        """Follow the engine until cancelled."""
        while True:
            await self._wait_until_up()
            await self._follow()

    async def _wait_until_up(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self.up:
            facts = await self._facts()
            if facts is None:
                await self._clock.sleep(pause_s)
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)
                continue
            self.model = facts.model
            self.size = window.start(self._max_in_flight, facts.max_running)
            self.up, self.suspect = True, False
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._pause()
            if self.suspect and not await self._answers():
                break
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    live = await self._engine.live_rids()
            except (ApiError, TimeoutError):
                if not await self._answers():
                    break
                continue
            signals = EngineSignals(len(live.waiting), len(live.running), self._num_refused)
            self._num_refused = 0
            self.size = window.adjust(self.size, signals, self._max_in_flight)
            self._changed.set()
        logger.warning("engine %s is gone; its rows wait", self._engine.url)
        self.up = self.suspect = False
        self._changed.set()

    async def _pause(self) -> None:
        """Wait `LOOK_S`, or until the engine is suspect."""
        if self.suspect:
            return
        self._asked.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._asked.wait()

    async def _answers(self) -> bool:
        """Whether the engine is there: one that answers late once is busy, not gone."""
        for last in (False, True):
            if await self._healthy():
                self.suspect = False
                return True
            if not last:
                await self._clock.sleep(FIRST_PAUSE_S)
        return False

    async def _healthy(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await self._engine.healthy()
        except TimeoutError:
            return False

    async def _facts(self) -> EngineFacts | None:
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await self._engine.facts() if await self._engine.healthy() else None
        except (ApiError, TimeoutError):
            return None
