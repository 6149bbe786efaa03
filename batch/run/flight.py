"""Rows that are at the engine right now: one asyncio task each, landed, stopped or called home."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from api.errors import EngineUnavailable
from batch.finish.output import cancelled_line, expired_line
from batch.run import quarantine
from batch.run.balance import Held
from batch.run.engine_watch import EngineWatch
from batch.run.execute import AttemptLimits, body_of, execute, given_up
from batch.run.pace import USUAL_ANSWER_TOKENS, Pace
from batch.run.results import ResultWriter, Used
from batch.states import RowStatus
from engine_adapter.client.base import (
    EMBEDDINGS_PATH,
    EngineClient,
    LiveRids,
    RequestClass,
    Served,
)
from engine_adapter.client.request_class import class_label
from engine_adapter.client.rid import new_rid
from service.clock import Clock
from store.repositories.batch import LiveBatch
from store.repositories.result import NewResult
from store.repositories.row import ClaimedRow, PutBack
from store.repositories.usage import UsageCount, UsageKey

logger = logging.getLogger(__name__)

STOP_LIMIT_S = 5.0
"""How long a stop waits for the engine to confirm that requests are gone."""


@dataclass
class Attempt:
    """One row at the engine, once.

    Attributes:
        work: What it is to the engine (batch/run/pace.py).
        sent_s: When it was sent, by the monotonic clock.
        begun: The engine was seen working on it.
        recalled: Whoever cancelled its task decides what becomes of it.
    """

    row: ClaimedRow
    batch: LiveBatch
    rid: str
    work: float
    raw_line: bytes
    sent_s: float
    begun: bool = False
    served: Served = field(default_factory=Served)
    task: asyncio.Task[None] | None = None
    recalled: bool = False


class InFlight:
    """The rows in flight of one dispatcher.

    Invariant: a claimed row is in flight, with the result writer, or put back by the lease's end.

    Attributes:
        num_retries: Attempts so far that failed in a way worth repeating.
        num_handed_back: Rows so far that were taken off the engine for others, or for chat.
        num_bytes: Length of the lines of the rows in flight.
        suspects: Digests of requests that run nowhere (`quarantine`).
    """

    def __init__(
        self,
        engine: EngineClient,
        watch: EngineWatch,
        results: ResultWriter,
        clock: Clock,
        limits: AttemptLimits,
        *,
        landed: asyncio.Event,
    ) -> None:
        self.num_retries = self.num_handed_back = self.num_bytes = 0
        self.suspects: frozenset[bytes] = frozenset()
        self._pace = Pace()
        self._landed = landed
        self._engine = engine
        self._watch = watch
        self._results = results
        self._clock = clock
        self._limits = limits
        self._random = random.Random()
        self._attempts: dict[int, Attempt] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def num_by_batch(self) -> dict[str, int]:
        """How many rows of each batch are in flight."""
        counts: dict[str, int] = {}
        for attempt in self._attempts.values():
            counts[attempt.row.batch_id] = counts.get(attempt.row.batch_id, 0) + 1
        return counts

    def held(self) -> dict[str, Held]:
        """The rows in flight of each batch, as far as the last poll of the engine told."""
        held: dict[str, Held] = {}
        for attempt in self._attempts.values():
            one = held.get(attempt.row.batch_id, Held())
            held[attempt.row.batch_id] = Held(
                one.num_begun + attempt.begun, one.num_queued + (not attempt.begun)
            )
        return held

    def poll(self, live: LiveRids) -> tuple[int, float | None]:
        """See `RowsThere.poll`. A row that has lost its slot again counts as begun."""
        work = 0.0
        num_begun = 0
        for attempt in self._attempts.values():
            attempt.begun = attempt.begun or attempt.rid in live.running
            num_begun += attempt.begun
            work += attempt.work
        self._pace.costs = self._watch.costs
        per_s = self._pace.per_s(self._clock.monotonic())
        return num_begun, per_s * len(self._attempts) / work if per_s is not None and work else None

    def start(
        self, group: asyncio.TaskGroup, row: ClaimedRow, batch: LiveBatch, raw_line: bytes
    ) -> None:
        """Send a row on its way; one that is suspected ends here."""
        if not self._attempts:
            self._pace.begin(self._clock.monotonic())
        expected = batch.answer_tokens or USUAL_ANSWER_TOKENS
        work = self._watch.costs.work(row.num_tokens, expected)
        attempt = Attempt(row, batch, new_rid(), work, raw_line, self._clock.monotonic())
        if self.suspects and not self.suspects.isdisjoint(_digests(attempt)):
            self._hand_over(attempt, given_up(row, quarantine.ONLINE_MESSAGE))
            return
        self._attempts[row.id] = attempt
        self.num_bytes += row.length_bytes
        attempt.task = group.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        try:
            outcome = await execute(
                attempt.row,
                attempt.raw_line,
                attempt.batch,
                self._engine,
                rid=attempt.rid,
                limits=self._limits,
                jitter=self._random.random(),
                served=attempt.served,
            )
        except asyncio.CancelledError:
            if not attempt.recalled:
                raise
            return
        if not self._remove(attempt):
            return  # recalled, and did not end in time: its end was decided without it
        self._landed.set()
        if outcome.engine_lost:
            self._watch.note_lost()
        if outcome.refused:
            self._watch.note_refused(len(self._attempts))
        elif not outcome.engine_lost:
            self._watch.note_answered()
        if isinstance(outcome.write, PutBack):
            self.num_retries += 1
        else:
            self._pace.note(self._clock.monotonic(), attempt.work)
        if outcome.given_up:
            self._results.condemn(_digests(attempt))
        if isinstance(outcome.write, NewResult) and not outcome.engine_lost:
            took_ms = round(1000 * (self._clock.monotonic() - attempt.sent_s))
            self._hand_over(attempt, replace(outcome.write, took_ms=took_ms))
        else:
            self._hand_over(attempt, outcome.write)

    async def stop_batches(self, stopped: Mapping[str, str]) -> None:
        """Take the rows of batches that were cancelled, have expired or are paused off the engine.

        The engine is asked to drop them, and shown to have, before they count as ended. Those of a
        paused batch are pending again, and the attempt does not count.

        Args:
            stopped: Batch id to the row status (`cancelled`, `expired`, `pending`) its rows get.
        """
        attempts = [one for one in self._attempts.values() if one.row.batch_id in stopped]
        recalled = await self._recall(attempts, limit_s=STOP_LIMIT_S)
        for attempt in recalled:
            status = RowStatus(stopped[attempt.row.batch_id])
            if status is RowStatus.PENDING:
                self._hand_over(attempt, PutBack(attempt.row.id))
                continue
            line_of = cancelled_line if status is RowStatus.CANCELLED else expired_line
            line = line_of(attempt.row.id, attempt.row.custom_id)
            self._hand_over(attempt, NewResult(attempt.row.id, attempt.row.batch_id, status, line))

    async def hand_back(self, nums: Mapping[str, int]) -> None:
        """Take rows off the engine that it has not begun: pending again, without an attempt.

        Args:
            nums: Batch id to how many of its rows; those sent last go first.
        """
        try:
            live = await self._engine.live_rids()
        except EngineUnavailable:
            return
        left = dict(nums)
        chosen = []
        for attempt in reversed(self._attempts.values()):
            # Not one that has only just been sent, or has just ended.
            waits = attempt.rid in live.waiting and not attempt.begun
            if (
                waits
                and attempt.batch.endpoint != EMBEDDINGS_PATH
                and left.get(attempt.batch.id, 0)
            ):
                left[attempt.batch.id] -= 1
                chosen.append(attempt)
        recalled = await self._recall(chosen, limit_s=STOP_LIMIT_S)
        self.num_handed_back += len(recalled)
        for attempt in recalled:
            self._hand_over(attempt, PutBack(attempt.row.id))

    async def give_way(self, num: int) -> None:
        """Take rows off the engine for chat: pending again, and the attempt does not count.

        Args:
            num: How many; those sent last go first, and have the least to lose.
        """
        last = list(self._attempts.values())[-num:]
        recalled = await self._recall(last, limit_s=STOP_LIMIT_S)
        self.num_handed_back += len(recalled)
        for attempt in recalled:
            self._hand_over(attempt, PutBack(attempt.row.id))

    async def put_back_all(self, *, lost: bool = False, limit_s: float = STOP_LIMIT_S) -> None:
        """Call every row home: it is pending again at once, and the attempt does not count.

        Args:
            lost: The engine is gone: any of the rows may be the one that ended or hung it.
            limit_s: How long the engine may take to confirm.
        """
        for attempt in await self._recall(list(self._attempts.values()), limit_s=limit_s):
            if lost and quarantine.is_final(attempt.row.num_losses + 1):
                self._results.condemn(_digests(attempt))
                self._hand_over(attempt, given_up(attempt.row))
            else:
                self._hand_over(attempt, PutBack(attempt.row.id, lost=lost))

    def _remove(self, attempt: Attempt) -> bool:
        """Count it as landed; whether it was in flight."""
        if self._attempts.pop(attempt.row.id, None) is None:
            return False
        self.num_bytes -= attempt.row.length_bytes
        return True

    def _hand_over(self, attempt: Attempt, outcome: NewResult | PutBack) -> None:
        """To the result writer, with what this attempt cost whoever sent the batch.

        Tokens count whether or not they became an answer; a row counts once, at its end.
        """
        usage = attempt.served.usage
        self._results.add(
            outcome,
            Used(
                UsageKey(
                    attempt.batch.project_id,
                    attempt.batch.key_id or "",
                    attempt.batch.model or self._watch.model,
                    class_label(RequestClass.OFFLINE),
                ),
                UsageCount(
                    int(isinstance(outcome, NewResult)),
                    usage.prompt_tokens,
                    usage.cached_tokens,
                    usage.completion_tokens,
                ),
            ),
        )

    async def _recall(self, attempts: Collection[Attempt], *, limit_s: float) -> list[Attempt]:
        """Cancel attempts and wait until the engine has dropped them; those that had not landed.

        Lasts `limit_s` at most: what the engine has not confirmed by then it will drop when it
        sees the connection closed.
        """
        tasks: list[asyncio.Task[None]] = []
        for attempt in attempts:
            attempt.recalled = True
            if attempt.task is not None:
                attempt.task.cancel()
                tasks.append(attempt.task)
        if not tasks:
            return []
        until_s = self._clock.monotonic() + limit_s
        _, stuck = await asyncio.wait(tasks, timeout=limit_s)
        for task in stuck:
            task.cancel()  # the first one asked the engine; this one ends the asking
        recalled = [one for one in attempts if self._remove(one)]
        self._landed.set()
        if stuck:
            logger.warning("%d requests did not end in %.1f s", len(stuck), limit_s)
        await self._confirm_gone({one.rid for one in recalled}, until_s)
        return recalled

    async def _confirm_gone(self, rids: set[str], until_s: float) -> None:
        """Aborts what the engine still has; the client aborted each already, so: nothing."""
        try:
            async with asyncio.timeout(max(0.1, until_s - self._clock.monotonic())):
                live = await self._engine.live_rids()
                for rid in (live.waiting | live.running) & rids:
                    if not await self._engine.abort(rid):
                        logger.warning("engine request %s was not dropped", rid)
        except (EngineUnavailable, TimeoutError):
            return


def _digests(attempt: Attempt) -> list[bytes]:
    batch = attempt.batch
    return quarantine.digests_of(batch.endpoint, body_of(attempt.raw_line, batch.model))
