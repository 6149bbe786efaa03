"""New rows for a dispatcher: which batches are live, how the places are divided, the claim, the
bodies read by range.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import ApiError
from batch.files import ByteRange, FileStore
from batch.run import balance, quarantine
from batch.run.balance import Held
from batch.run.quarantine import Cohort
from batch.run.share import Demand, divide
from service.clock import Clock
from store.repositories import batch as batches
from store.repositories import dispatcher as dispatchers
from store.repositories import row as rows
from store.repositories import suspect as suspects
from store.repositories.batch import LiveBatch
from store.repositories.row import NO_BYTE_LIMIT, ByteRoom, ClaimedRow, PutBack
from store.session import Database

logger = logging.getLogger(__name__)

CLAIM_ROWS = 512
"""A transaction costs as much as some dozens of rows: one for all places that are free."""
REFRESH_S = 0.25
"""How old the list of live batches may be; a claim that came short refreshes it at once."""

UNREADABLE_DELAY_S = 2.0

DOUBT_S = 30.0
"""A claim without an answer may have been made all the same, or be made yet, for so long."""


class Ready(NamedTuple):
    """A leased row with its line: ready to be sent."""

    row: ClaimedRow
    batch: LiveBatch
    raw_line: bytes


@dataclass(frozen=True)
class Intake:
    """What one claim brought: rows to send, and rows whose line could not be read."""

    ready: tuple[Ready, ...] = ()
    unreadable: tuple[PutBack, ...] = ()


class RowClaimer:
    """Claims rows over all live batches of an engine's models.

    Attributes:
        suspects: Digests of requests that run nowhere, as of the last look at the batches.
    """

    def __init__(
        self, dispatcher_id: str, database: Database, file_store: FileStore, clock: Clock
    ) -> None:
        self._dispatcher_id = dispatcher_id
        self._database = database
        self._file_store = file_store
        self._clock = clock
        self._live: dict[str, LiveBatch] = {}
        self._exhausted: set[str] = set()
        self._num_taken: Counter[str] = Counter()
        self._fresh_until_s = 0.0
        self.suspects: frozenset[bytes] = frozenset()
        self._turn = 0
        self._num_claims = 0
        self._open_claim: str | None = None
        self._doubtful: dict[str, float] = {}

    async def take(
        self,
        models: Collection[str],
        num_free: int,
        num_in_flight: Mapping[str, int],
        room: ByteRoom = NO_BYTE_LIMIT,
    ) -> Intake:
        """Claim up to `num_free` rows (at most `CLAIM_ROWS`) and read their lines.

        Args:
            models: The models that the engine serves.
            num_free: Places free at the engine.
            num_in_flight: Rows held already, by batch.
            room: Bytes that there is room for here.
        """
        try:
            places = min(num_free, CLAIM_ROWS)
            claimed = await self._claim(models, places, room, num_in_flight)
        except (OperationalError, InterfaceError) as away:
            return self._doubt(away)
        return await self._with_lines(claimed)

    async def _with_lines(self, claimed: list[ClaimedRow]) -> Intake:
        by_object: dict[str, list[tuple[ClaimedRow, LiveBatch]]] = {}
        for row in claimed:
            batch = self._live[row.batch_id]
            by_object.setdefault(batch.storage_key, []).append((row, batch))
        parts = await asyncio.gather(*(self._read(key, found) for key, found in by_object.items()))
        return Intake(
            ready=tuple(one for part in parts for one in part.ready),
            unreadable=tuple(one for part in parts for one in part.unreadable),
        )

    async def take_cohort(
        self, models: Collection[str], cohort: Cohort, num_rows: int, room: ByteRoom
    ) -> Intake:
        """Claim up to `num_rows` rows of a cohort, as `take` does, and read their lines."""
        try:
            async with self._database.unit_of_work() as session:
                await self._refresh(session, models)
                claimed = await rows.claim_suspects(
                    session,
                    self._dispatcher_id,
                    list(self._live),
                    losses=(cohort.min_losses, cohort.max_losses),
                    limit=num_rows,
                    claim_id=await self._next_claim(session),
                    room=room,
                )
        except (OperationalError, InterfaceError) as away:
            return self._doubt(away)
        self._answered()
        return await self._with_lines(claimed)

    async def rebalance(
        self, models: Collection[str], size: int, held: Mapping[str, Held]
    ) -> dict[str, int]:
        """How many rows of which batch have to make room for others at the engine.

        Args:
            models: The models that the engine serves.
            size: Rows that are to be there.
            held: Rows that are.
        """
        try:
            async with self._database.unit_of_work() as session:
                await self._refresh(session, models, held)
                demands = self._demands({})
                short = balance.under_served(size, demands, held)
                if not short:
                    return {}
                wanted = await rows.num_claimable(
                    session, short, suspect_losses=quarantine.SUSPECT_LOSSES
                )
        except (OperationalError, InterfaceError):
            return {}
        return balance.rebalance(size, demands, held, wanted)

    async def has_overdue_suspects(self) -> bool:
        """Whether suspects have waited too long for an engine with nothing else to do."""
        try:
            async with self._database.unit_of_work() as session:
                return await rows.has_overdue_suspects(
                    session,
                    list(self._live),
                    min_losses=quarantine.SUSPECT_LOSSES,
                    overdue_s=quarantine.OVERDUE_S,
                )
        except (OperationalError, InterfaceError):
            return False

    async def has_work(self) -> bool:
        """Whether any row of any live batch is pending, now or after a back-off."""
        try:
            async with self._database.unit_of_work() as session:
                return await dispatchers.has_claimable_rows(session)
        except (OperationalError, InterfaceError):
            # Unknown is not "nothing": the heartbeat decides how long this may last.
            return True

    async def stopped(self, batch_ids: list[str]) -> dict[str, str]:
        """Those of the batches whose rows must not run any more (see the repository)."""
        try:
            async with self._database.unit_of_work() as session:
                return await batches.stopped(session, batch_ids)
        except (OperationalError, InterfaceError):
            return {}

    async def _claim(
        self,
        models: Collection[str],
        num_places: int,
        room: ByteRoom,
        num_in_flight: Mapping[str, int],
    ) -> list[ClaimedRow]:
        async with self._database.unit_of_work() as session:
            await self._refresh(session, models, num_in_flight)
            self._turn += 1
            quotas = divide(num_places, self._demands(num_in_flight), turn=self._turn)
            if not quotas:
                return []
            claimed = await rows.claim(
                session,
                self._dispatcher_id,
                quotas,
                suspect_losses=quarantine.SUSPECT_LOSSES,
                claim_id=await self._next_claim(session),
                room=room,
            )
        self._answered()
        num_got = Counter(row.batch_id for row in claimed)
        self._num_taken.update(num_got)
        # Short: everything else of this batch is leased, waiting out a back-off, or done.
        self._exhausted |= {name for name, num in quotas.items() if num_got[name] < num}
        return claimed

    def _doubt(self, away: OperationalError | InterfaceError) -> Intake:
        """The claim failed, or only its answer did: then its rows are ours and nobody runs them."""
        logger.warning("claim failed: %s", type(away.orig).__name__)
        if self._open_claim is not None:
            self._doubtful[self._open_claim] = self._clock.monotonic() + DOUBT_S
            self._open_claim = None
        return Intake()

    async def _next_claim(self, session: AsyncSession) -> str:
        """The name of a new claim; rows of doubtful ones are given back before it."""
        if self._doubtful:
            await rows.undo_claims(session, self._dispatcher_id, self._doubtful)
        self._num_claims += 1
        self._open_claim = str(self._num_claims)
        return self._open_claim

    def _answered(self) -> None:
        """The claim's transaction was committed, and what it undid is undone."""
        now_s = self._clock.monotonic()
        self._doubtful = {one: until for one, until in self._doubtful.items() if until > now_s}
        self._open_claim = None

    async def _refresh(
        self, session: AsyncSession, models: Collection[str], held: Collection[str] = ()
    ) -> None:
        """Look at the live batches again, if it is time: those with rows to claim, and of `held`.

        A claim takes `CLAIM_ROWS` rows at most: of so many batches at most, whoever's they are.
        """
        now_s = self._clock.monotonic()
        if now_s >= self._fresh_until_s:
            found = await batches.live(session, models, held=held, per_project=CLAIM_ROWS)
            self._live = {one.id: one for one in found}
            self.suspects = await suspects.lost_often(session, num_losses=quarantine.ONLINE_LOSSES)
            self._exhausted = set()
            self._num_taken = Counter()
            self._fresh_until_s = now_s + REFRESH_S

    def _demands(self, num_in_flight: Mapping[str, int]) -> list[Demand]:
        return [
            Demand(
                batch_id=batch.id,
                project_id=batch.project_id,
                priority=batch.priority,
                due_at=batch.due_at,
                num_waiting=0 if batch.id in self._exhausted else self._num_waiting(batch),
                num_in_flight=num_in_flight.get(batch.id, 0),
            )
            for batch in self._live.values()
        ]

    def _num_waiting(self, batch: LiveBatch) -> int:
        return max(0, batch.num_open - self._num_taken[batch.id])

    async def _read(self, storage_key: str, claimed: list[tuple[ClaimedRow, LiveBatch]]) -> Intake:
        ranges = [ByteRange(row.offset_bytes, row.length_bytes) for row, _ in claimed]
        try:
            lines = await self._file_store.read_ranges(storage_key, ranges)
        except (ApiError, OSError) as error:
            logger.warning("rows of %s cannot be read: %s", storage_key, error)
            message = "The content of the input file could not be read."
            failure = {"message": message, "type": "server_error", "param": None, "code": None}
            return Intake(
                unreadable=tuple(
                    PutBack(row.id, delay_s=UNREADABLE_DELAY_S, error=failure) for row, _ in claimed
                )
            )
        return Intake(
            ready=tuple(
                Ready(row, batch, line) for (row, batch), line in zip(claimed, lines, strict=True)
            )
        )
