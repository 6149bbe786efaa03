"""Fills one step row by row and keeps the books while doing so.

Every promise is taken out of the snapshot's resources at once, so a plan built here never
promises a page, a slot or a token twice. The driver checks the result again from scratch.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.plan import (
    Checkpoint,
    Chunk,
    Prefetch,
    Retract,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.request import (
    SLOT_PHASES,
    Phase,
    Release,
    RequestClass,
    RequestRow,
    new_pages,
    pages_cut,
    pages_for,
)
from engine_adapter.scheduling.snapshot import Column, ReadyRows, Snapshot

ONLINE = RequestClass.ONLINE

# --- How many decoding requests fit, found by sums and by halving instead of row by row.


def with_rows(load: StepLoad, ready: ReadyRows, num_rows: int) -> StepLoad:
    """The load with the first ``num_rows`` decoding requests; each counts the token it computes."""
    joined = load.copy()
    context, square = ready.front(num_rows)
    joined.decode_rows += num_rows
    joined.decode_context += context
    joined.decode_square += square
    return joined


def rows_that_fit(
    model: LatencyModel, load: StepLoad, ready: ReadyRows, most: int, bound_s: float
) -> tuple[int, StepLoad]:
    """Most decoding requests, from the front, with which a step stays within ``bound_s``.

    Relies on what every latency model here guarantees: another row never makes a step shorter.

    Args:
        model: Predicts the step.
        load: Rows already in it; not changed.
        ready: The candidates.
        most: How many of them to take at most.
        bound_s: Longest predicted time.

    Returns:
        How many, and the load with them.
    """
    trial = with_rows(load, ready, most)
    if not most or model.predict(trial) <= bound_s:
        return most, trial
    contexts, squares = ready.lengths.sums, ready.squares.sums

    def predicted_s(num_rows: int) -> float:
        trial.decode_rows = load.decode_rows + num_rows
        trial.decode_context = load.decode_context + contexts[num_rows]
        trial.decode_square = load.decode_square + squares[num_rows]
        return model.predict(trial)

    fit = bisect_right(range(1, most + 1), bound_s, key=predicted_s)
    return fit, with_rows(load, ready, fit)


def rows_with_pages(pages: Column, most: int, pages_left: int) -> int:
    """Most rows, from the front, that take no more than ``pages_left`` device pages together.

    Args:
        pages: Pages each row takes, none of them negative.
        most: How many rows to take at most.
        pages_left: Device pages still to be promised.
    """
    if pages.front(most) <= pages_left:
        return most
    return max(0, bisect_right(pages.sums, pages_left, hi=most) - 1)


# --- What one step may still promise to its rows: counted down as the step is filled.


class Promises:
    """Resources of a snapshot that no row of the step has yet.

    Attributes:
        pages_left: Device pages still to be promised.
        slots_left: Free slots still to be promised, to anyone.
        offline_slots_left: Slots rows that are not online may still take.
        chunk_left: Prompt tokens the executor still takes.
        rows_left: Rows the executor still takes.
        copy_left: Host pages the interconnect still moves.
        host_left: Host pages still to be promised.
        release: What the rows retracted in this step give up.
        coming: The same with the rows that rest in this step and give theirs up in the next.
        coming_pages: Device pages that those make available.
        coming_slots: Slots they give up.
        owed_pages: Device pages that online requests need in the next step.
        owed_slots: Slots they need.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Everything the snapshot has."""
        resources, limits = snapshot.resources, snapshot.limits
        self.pages_left = resources.available_pages
        self.slots_left = resources.free_slots
        held = len(snapshot.offline_running)
        self.offline_slots_left = resources.total_slots - resources.reserved_slots - held
        self.chunk_left = limits.max_chunk_tokens
        self.rows_left = limits.max_batch_rows
        self.copy_left = resources.copy_pages_per_step
        self.host_left = resources.host_free_pages
        self.release, self.coming = Release(), Release()
        self.coming_pages = self.coming_slots = 0
        self.owed_pages = self.owed_slots = 0

    @property
    def has_offline_slot(self) -> bool:
        """Whether a waiting request that is not online could begin."""
        return self.slots_left > 0 and self.offline_slots_left > 0

    def has_slot_for(self, row: RequestRow) -> bool:
        """Whether this waiting request could begin."""
        is_online = row.request_class is ONLINE
        return self.slots_left > 0 if is_online else self.has_offline_slot

    def owe(self, num_pages: int, num_slots: int) -> None:
        """Online requests get these in the next step, from what is left and what comes."""
        self.owed_pages += num_pages
        self.owed_slots += num_slots

    def hold_back(self) -> None:
        """Keep what is owed of the pages that are left: nothing offline may take them now.

        Otherwise the next step finds less than this one counted on, rows rest once more, and so on.
        """
        self.pages_left -= min(self.pages_left, self.owed_pages)

    def take_slot(self, row: RequestRow) -> None:
        """Promise a slot to the row."""
        self.slots_left -= 1
        if row.request_class is not ONLINE:
            self.offline_slots_left -= 1


UNARMED = Safepoints()
UNBOUNDED_S = math.inf


class PlanBuilder(Promises):
    """A step under construction.

    Args:
        snapshot: State the step is planned from.
        model: Predicts durations.
        quantile: Measured over predicted time that nearly all steps keep below; what budgets are
            divided by.
        first_quantile: The same for deadlines of first tokens, if it is another.
        pace_quantile: The same for those of the pace.

    Attributes:
        load: Sums over the rows taken so far.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        model: LatencyModel,
        quantile: float = 1.0,
        *,
        first_quantile: float | None = None,
        pace_quantile: float | None = None,
    ) -> None:
        """Open an empty step."""
        super().__init__(snapshot)
        self.snapshot = snapshot
        self.model = model
        self.load = StepLoad()
        self.page_tokens = snapshot.resources.page_tokens
        self.num_online = 0
        self.num_offline = 0
        self.has_unmixable = False
        self._quantile = quantile
        self.first_quantile = quantile if first_quantile is None else first_quantile
        self.pace_quantile = quantile if pace_quantile is None else pace_quantile
        self._taken: set[str] = set()
        self._taken_runs: list[tuple[str, ...]] = []
        self._decode: list[str] = []
        self._prefill: list[Chunk] = []
        self._retracts: list[str] = []
        self._cuts: list[Retract] = []
        self._resting: set[str] = set()
        self._checkpoints: list[Checkpoint] = []
        self._prefetches: list[Prefetch] = []

    def predicted_s(self) -> float:
        """Predicted duration of the rows taken so far."""
        return self.model.predict(self.load)

    def bounded_s(self, budget_s: float) -> float:
        """What may be predicted of a step that is to end within the budget."""
        return (budget_s - self.snapshot.overhead_s) / self._quantile

    def budget_of(self, slack_s: float, quantile: float) -> float:
        """The budget whose bound is that of a slack with a quantile of its own."""
        if quantile == self._quantile:
            return slack_s
        overhead_s = self.snapshot.overhead_s
        return overhead_s + (slack_s - overhead_s) * self._quantile / quantile

    def decode_pages(self, row: RequestRow) -> int:
        """Device pages one more token of a decoding request takes."""
        return -(-(row.computed_tokens + 1) // self.page_tokens) - row.device_pages

    def next_pages(self, row: RequestRow) -> int:
        """Device pages that the next step's token takes, for a decoding request of this step."""
        return pages_for(row.computed_tokens + 2, self.page_tokens) - pages_for(
            row.computed_tokens + 1, self.page_tokens
        )

    def decode(self, row: RequestRow, budget_s: float) -> bool:
        """Take one decode token of ``row``; False if pages, rows or time do not allow it."""
        if budget_s != math.inf:
            # Rows that are too slow are the many; they are sent away before anything is summed.
            predicted_s = self.model.predict_with_decode(self.load, row.computed_tokens)
            if predicted_s > self.bounded_s(budget_s):
                return False
        return self.decode_run(ReadyRows([row], self.page_tokens), budget_s) == 1

    def decode_run(self, ready: ReadyRows, budget_s: float) -> int:
        """Take rows from the front as long as they fit; returns how many.

        The same rows as taking them one by one, because neither pages nor predicted time ever
        shrink when a row joins; but a full step costs a few sums instead of a call per row.
        """
        fit = rows_with_pages(ready.pages, self._may_join(ready), self.pages_left)
        if budget_s == math.inf:
            self.load = with_rows(self.load, ready, fit)
        else:
            bound_s = self.bounded_s(budget_s)
            fit, self.load = rows_that_fit(self.model, self.load, ready, fit, bound_s)
        self.pages_left -= ready.pages.front(fit)
        self._taken_runs.append(ready.rids[:fit])
        self._decode += self._taken_runs[-1]
        self.rows_left -= fit
        if not (ready.can_mix or all(row.can_mix for row in ready.rows[:fit])):
            self.has_unmixable = True
        if ready.is_online:
            self.num_online += fit
        else:
            self.num_offline += fit
        return fit

    def _may_join(self, ready: ReadyRows) -> int:
        """How many rows from the front may share the step, pages and time aside."""
        room = max(0, min(len(ready.rows), self.rows_left))
        if not self._prefill or room == 0:
            return room
        if self.has_unmixable or not self.snapshot.limits.can_mix:
            return 0
        if ready.can_mix:
            return room
        return next((i for i, row in enumerate(ready.rows[:room]) if not row.can_mix), room)

    def chunk_room(self, row: RequestRow, budget_s: float, keep_pages: int = 0) -> int:
        """Prompt tokens of ``row`` that could be taken now, 0 if none.

        A chunk that does not finish the prompt ends on a page boundary.
        """
        if self.rows_left <= 0 or (self._decode and not self._may_mix(row)):
            return 0
        holds_slot = row.phase in SLOT_PHASES
        if not holds_slot and not self.has_slot_for(row):
            return 0
        start = row.computed_tokens if holds_slot else row.cached_tokens
        remaining = row.fill_tokens - start
        limit = min(remaining, self.chunk_left)
        room_pages = self.pages_left - keep_pages + row.device_pages
        limit = min(limit, room_pages * self.page_tokens - start)
        if limit <= 0:
            return 0
        if budget_s != math.inf:
            limit = self.model.max_tokens(self.load, start, limit, self.bounded_s(budget_s))
        if limit < remaining:
            limit = (start + limit) // self.page_tokens * self.page_tokens - start
        return max(0, limit)

    def chunk(self, row: RequestRow, budget_s: float, keep_pages: int = 0) -> int:
        """Take as many prompt tokens of ``row`` as fit; returns how many."""
        num_tokens = self.chunk_room(row, budget_s, keep_pages)
        if num_tokens == 0:
            return 0
        self.pages_left -= new_pages(row, num_tokens, self.page_tokens)
        if row.phase not in SLOT_PHASES:
            self.take_slot(row)
        self.chunk_left -= num_tokens
        self.load.add_chunk(num_tokens, row.start_tokens)
        self._prefill.append(Chunk(row.rid, num_tokens))
        self._take(row)
        return num_tokens

    def retract(self, row: RequestRow) -> int:
        """Take slot and pages from ``row``; returns the device pages gained."""
        gained = self.release.add(row)
        self.coming.add(row)
        self.pages_left += gained
        self.slots_left += 1
        if row.request_class is not ONLINE:
            self.offline_slots_left += 1
        self._retracts.append(row.rid)
        self._taken.add(row.rid)
        # The unfinished page goes to the host with the retract, and maybe the one before it.
        self.host_left -= 2
        return gained

    def cut(self, row: RequestRow, num_pages: int) -> int:
        """Take the last device pages of ``row``: as many as asked for, a few more, or all but one.

        Returns:
            The device pages gained; 0 if its end cannot be taken alone, or the copies do not fit.
        """
        host_page = self.snapshot.resources.host_page_tokens
        block = math.lcm(host_page, self.page_tokens)
        kept = max(block, (row.computed_tokens - num_pages * self.page_tokens) // block * block)
        moved, claimed = pages_cut(row, kept, host_page)
        if kept >= row.computed_tokens or moved > self.copy_left or claimed > self.host_left:
            return 0
        gained = row.device_pages - pages_for(kept, self.page_tokens)
        self.pages_left += gained
        self.copy_left -= moved
        self.host_left -= claimed
        self._cuts.append(Retract(row.rid, kept))
        self._taken.add(row.rid)
        return gained

    def rest(self, row: RequestRow) -> None:
        """Leave the row out of this step: it gives its pages up once its last result is there."""
        self._resting.add(row.rid)
        self._taken.add(row.rid)
        self.coming_pages += self.coming.add(row)
        self.coming_slots += 1

    def prefetch(self, row: RequestRow, keep_pages: int = 0) -> int:
        """Order the next host pages of ``row`` back; returns how many host pages."""
        host_page = self.snapshot.resources.host_page_tokens
        begin = row.prefetched_pages
        if begin == 0 and not self.has_slot_for(row):
            return 0
        total = pages_for(row.host_tokens, host_page)
        num_pages = min(total - begin, self.copy_left)
        if num_pages <= 0:
            return 0
        tokens = min((begin + num_pages) * host_page, row.host_tokens)
        pages = max(0, pages_for(tokens, self.page_tokens) - row.device_pages)
        if pages > self.pages_left - keep_pages:
            return 0
        self.pages_left -= pages
        self.copy_left -= num_pages
        if begin == 0:
            self.take_slot(row)
        self._prefetches.append(Prefetch(row.rid, begin, num_pages))
        self._taken.add(row.rid)
        return num_pages

    def checkpoint(self, wanted: Iterable[tuple[RequestRow, int]]) -> bool:
        """Order the next so many uncopied pages of each to the host; False once room is used up."""
        for row, asked in wanted:
            num_pages = min(asked, self.copy_left, self.host_left)
            if num_pages > 0:
                self.copy_left -= num_pages
                self.host_left -= num_pages
                begin = row.host_pages + row.host_pages_pending
                self._checkpoints.append(Checkpoint(row.rid, begin, num_pages))
            if num_pages < asked:
                return False
        return True

    def build(self, budget_s: float, safepoints: Safepoints = UNARMED) -> StepPlan:
        """Close the step. Every slot holder that could run and was not taken is parked."""
        running, left = self.snapshot.running, []
        if len(self._decode) < len(running):  # not the usual full step
            taken = self.taken - self._resting
            left = [row for row in running if row.rid not in taken]
        parks = tuple([row.rid for row in left if row.phase is not Phase.PREFETCHING])
        return StepPlan(
            step_id=self.snapshot.step_id,
            decode=tuple(self._decode),
            prefill=tuple(self._prefill),
            parks=parks,
            retracts=tuple(self._retracts),
            cuts=tuple(self._cuts),
            checkpoints=tuple(self._checkpoints),
            prefetches=tuple(self._prefetches),
            safepoints=safepoints,
            predicted_s=self.predicted_s(),
            budget_s=budget_s,
            calibration=self.model.level,
        )

    def untaken(self, ready: ReadyRows) -> ReadyRows:
        """Those of the rows the step has no act for yet."""
        # Decoding requests are decoded or retracted; other acts are for rows in other phases.
        num_taken = self.num_online if ready.is_online else self.num_offline
        if not num_taken and not self.makes_room:
            return ready
        taken = self.taken
        return ReadyRows([row for row in ready.rows if row.rid not in taken], self.page_tokens)

    @property
    def taken(self) -> set[str]:
        """Ids of all rows with an act in this step; a full step needs the set nowhere."""
        if self._taken_runs:
            self._taken.update(*self._taken_runs)
            self._taken_runs.clear()
        return self._taken

    @property
    def retracted(self) -> list[str]:
        """Ids of the rows this step retracts."""
        return self._retracts

    @property
    def makes_room(self) -> bool:
        """Whether rows give pages up in this step, or rest in order to do so."""
        return bool(self._retracts or self._cuts or self._resting)

    @property
    def is_empty(self) -> bool:
        """Whether no token has been taken yet."""
        return not self._decode and not self._prefill

    def chunk_tokens_of(self, row: RequestRow) -> int:
        """Prompt tokens of ``row`` that have been taken."""
        return next((chunk.num_tokens for chunk in self._prefill if chunk.rid == row.rid), 0)

    @property
    def has_chunks(self) -> bool:
        """Whether prompt tokens have been taken."""
        return bool(self._prefill)

    @property
    def has_decode(self) -> bool:
        """Whether decoding requests have been taken."""
        return bool(self._decode)

    def _may_mix(self, row: RequestRow) -> bool:
        return self.snapshot.limits.can_mix and row.can_mix and not self.has_unmixable

    def _take(self, row: RequestRow) -> None:
        self.rows_left -= 1
        self._taken.add(row.rid)
        if not row.can_mix:
            self.has_unmixable = True
        if row.request_class is ONLINE:
            self.num_online += 1
        else:
            self.num_offline += 1
