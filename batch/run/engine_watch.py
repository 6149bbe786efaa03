"""What a dispatcher knows about its engine: whether it is there, its model, and how full it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sqlalchemy.exc import InterfaceError, OperationalError

from api.errors import ApiError
from batch.run import chat_room, window
from batch.run.chat_room import ChatRoom, Poll
from batch.run.pace import TokenCosts
from batch.run.window import Closed, EngineSignals, Trial
from engine_adapter.client.base import EngineClient, EngineFacts, LiveRids
from service.clock import Clock
from store.repositories.chat_report import ChatNow

logger = logging.getLogger(__name__)


class RowsThere(Protocol):
    """Our rows at the engine, as far as its watch has to know."""

    def poll(self, live: LiveRids) -> tuple[int, float | None]:
        """How many of them it has begun, and how many like them it does in a second."""
        ...

    def __len__(self) -> int: ...


POLL_INTERVAL_S = 1.0
CHAT_POLLS = 4
"""How often meanwhile rows at an engine of level 0 are fitted to what chat gets."""

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
        models: The ids of all that it serves, that one first.
        size: How many rows to keep there.
        classes_only: It co-serves at level 0: how many rows it may have follows what chat gets
            (`chat_room`).
        costs: What its profile predicts for a token.
        rows: Our rows there, once somebody has them.
        num_refused: Calls that it turned away so far.
        num_lost: Calls that were lost so far.
    """

    def __init__(
        self,
        engine: EngineClient,
        clock: Clock,
        *,
        max_in_flight: int,
        changed: asyncio.Event,
        chat: Callable[[], Awaitable[ChatNow]] | None = None,
    ) -> None:
        self.up = False
        self.suspect = False
        self.model = ""
        self.models: tuple[str, ...] = ()
        self.size = 0
        self.classes_only = False
        self.costs = TokenCosts()
        self.rows: RowsThere | None = None
        self._changed = changed
        self._chat = chat
        self._room = ChatRoom()
        self._queue: int | None = None
        self._engine = engine
        self._clock = clock
        self._max_in_flight = max_in_flight
        self.num_refused = 0
        self.num_lost = 0
        self._trial = Trial()
        self._closed = Closed()
        self._asked = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether rows may be sent."""
        return self.up and not self.suspect and self._clock.monotonic() >= self._closed.until_s

    def note_refused(self, num_in_flight: int) -> None:
        """A call was turned away because the engine is full; so many others it has accepted."""
        now_s = self._clock.monotonic()
        self.num_refused += 1
        self.size = window.after_refusal(self.size, num_in_flight)
        self._trial.note_refused(now_s)
        if num_in_flight == 0:
            self._closed.note_refused(now_s)

    def note_answered(self) -> None:
        if self._closed.is_on:  # it was not full but closed: what it has room for is unknown
            self._trial = Trial()
        self._closed.note_answered()

    def note_lost(self) -> None:
        """A call was lost: send no more, and ask at once whether the engine is still there."""
        self.suspect = True
        self.num_lost += 1
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
            self.model, self.models = facts.model, tuple(facts.models)
            self.classes_only = facts.level == 0
            if self.classes_only:
                self.size = min(self._room.size, self._max_in_flight)
            else:
                self.size = window.start(self._max_in_flight, facts.max_running)
            self.costs = TokenCosts.reported(
                facts.reported("token_costs.prompt_s"), facts.reported("token_costs.answer_s")
            )
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
            self._adjust(live)
            self._changed.set()
        logger.warning("engine %s is gone; its rows wait", self._engine.url)
        self.up = self.suspect = False
        self._changed.set()

    async def _make_room(self) -> None:
        """Let rows at an engine of level 0 follow what chat gets there."""
        try:
            chat = ChatNow() if self._chat is None else await self._chat()
        except (OperationalError, InterfaceError):
            return  # nothing is claimed either
        num_rows = 0 if self.rows is None else len(self.rows)
        poll = Poll(chat.num_open, chat.pressure, num_rows, self._queue)
        now_s = self._clock.monotonic()
        self._room = chat_room.after(self._room, poll, now_s, self._max_in_flight)
        before, self.size = self.size, self._room.size
        if self.size != before:
            self._changed.set()

    def _adjust(self, live: LiveRids) -> None:
        now_s = self._clock.monotonic()
        before = self.size
        may_grow = now_s >= self._trial.until_s and not self._closed.is_on
        wary = self._trial.lasts_s > 0.0
        num_begun, rows_per_s = (0, None) if self.rows is None else self.rows.poll(live)
        if self.classes_only:
            # One of ours lists who waits, another one counts them if it tells at all.
            self._queue = live.queue if live.queue is not None else len(live.waiting) or None
            return
        signals = EngineSignals(
            len(live.waiting), len(live.running), num_begun, rows_per_s, may_grow, wary
        )
        self.size = window.adjust(before, signals, self._max_in_flight)
        if wary and self.size > before:
            self._trial.note_grown(now_s)

    async def _pause(self) -> None:
        """Wait for the next poll, or until the engine is suspect."""
        if self.suspect:
            return
        self._asked.clear()
        num_polls = CHAT_POLLS if self.classes_only else 1
        for _ in range(num_polls):
            if self.classes_only:
                await self._make_room()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S / num_polls):
                    await self._asked.wait()
                    return

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
                facts = await self._engine.facts() if await self._engine.healthy() else None
        except (ApiError, TimeoutError):
            return None
        # One of ours that has lost its scheduler would run rows before chat.
        return facts if facts is not None and facts.usable else None
