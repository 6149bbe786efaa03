"""Fills one step request by request and keeps the books while doing so.

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
    Restore,
    Retract,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.request import (
    SLOT_PHASES,
    Phase,
    Release,
    Request,
    RequestClass,
    new_pages,
    pages_cut,
    pages_for,
)
from engine_adapter.scheduling.snapshot import Column, DecodeReady, Snapshot

ONLINE = RequestClass.ONLINE

# --- How many decoding requests fit, found by sums and by halving instead of request by request.


def with_requests(load: StepLoad, ready: DecodeReady, num_requests: int) -> StepLoad:
    """Load of the first ``num_requests`` decoding requests, each with the token it computes."""
    joined = load.copy()
    context, square = ready.front(num_requests)
    joined.decode_requests += num_requests
    joined.decode_context += context
    joined.decode_square += square
    return joined


def requests_that_fit(
    model: LatencyModel, load: StepLoad, ready: DecodeReady, most: int, bound_s: float
) -> tuple[int, StepLoad]:
    """Most decoding requests, from the front, with which a step stays within ``bound_s``.

    Relies on what every latency model here guarantees: another request never makes a step shorter.

    Args:
        model: Predicts the step.
        load: Requests already in it; not changed.
        ready: The candidates.
        most: How many of them to take at most.
        bound_s: Longest predicted time.

    Returns:
        How many, and the load with them.
    """
    trial = with_requests(load, ready, most)
    if not most or model.predict(trial) <= bound_s:
        return most, trial
    contexts, squares = ready.lengths.sums, ready.squares.sums

    def predicted_s(num_requests: int) -> float:
        trial.decode_requests = load.decode_requests + num_requests
        trial.decode_context = load.decode_context + contexts[num_requests]
        trial.decode_square = load.decode_square + squares[num_requests]
        return model.predict(trial)

    fit = bisect_right(range(1, most + 1), bound_s, key=predicted_s)
    return fit, with_requests(load, ready, fit)


def requests_with_pages(pages: Column, most: int, pages_left: int) -> int:
    """Most requests, from the front, that take no more than ``pages_left`` device pages together.

    Args:
        pages: Pages each request takes, none of them negative.
        most: How many requests to take at most.
        pages_left: Device pages still to be promised.
    """
    if pages.front(most) <= pages_left:
        return most
    return max(0, bisect_right(pages.sums, pages_left, hi=most) - 1)


# --- What one step may still promise to its requests: counted down as the step is filled.


class StepBudget:
    """Resources of a snapshot that no request of the step has yet.

    Attributes:
        pages_left: Device pages still to be promised.
        slots_left: Free slots still to be promised, to anyone.
        offline_slots_left: Slots requests that are not online may still take.
        chunk_left: Prompt tokens the executor still takes.
        requests_left: Requests the executor still takes.
        copy_left: Host pages the interconnect still moves.
        host_left: Host pages still to be promised.
        release: What the requests retracted in this step give up.
        coming: The same with the requests that rest in this step and give theirs up in the next.
        coming_pages: Device pages that those make available.
        coming_slots: Slots they give up.
        owed_pages: Device pages that online requests need in the next step.
        owed_slots: Slots they need.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        resources, limits = snapshot.resources, snapshot.limits
        self.pages_left = resources.available_pages
        self.slots_left = resources.free_slots
        held = len(snapshot.offline_running)
        self.offline_slots_left = resources.total_slots - resources.reserved_slots - held
        self.chunk_left = limits.max_chunk_tokens
        self.requests_left = limits.max_batch_size
        self.copy_left = resources.copy_pages_per_step
        self.host_left = resources.host_free_pages
        self.release, self.coming = Release(), Release()
        self.coming_pages = self.coming_slots = 0
        self.owed_pages = self.owed_slots = 0

    @property
    def has_offline_slot(self) -> bool:
        """Whether a waiting request that is not online could begin."""
        return self.slots_left > 0 and self.offline_slots_left > 0

    def has_slot_for(self, request: Request) -> bool:
        """Whether this waiting request could begin."""
        is_online = request.request_class is ONLINE
        return self.slots_left > 0 if is_online else self.has_offline_slot

    def owe(self, num_pages: int, num_slots: int) -> None:
        """Online requests get these in the next step, from what is left and what comes."""
        self.owed_pages += num_pages
        self.owed_slots += num_slots

    def hold_back(self) -> None:
        """Keep what is owed of the pages that are left: nothing offline may take them now.

        Otherwise the next step finds less than this one counted on, requests rest once more, and so
        on.
        """
        self.pages_left -= min(self.pages_left, self.owed_pages)

    def take_slot(self, request: Request) -> None:
        """Promise a slot to the request."""
        self.slots_left -= 1
        if request.request_class is not ONLINE:
            self.offline_slots_left -= 1


UNARMED = Safepoints()
UNBOUNDED_S = math.inf


class PlanBuilder(StepBudget):
    """A step under construction.

    Args:
        snapshot: State the step is planned from.
        model: Predicts durations.
        quantile: Measured over predicted time that nearly all steps keep below; what budgets are
            divided by.
        first_quantile: The same for deadlines of first tokens, if it is another.
        pace_quantile: The same for those of the pace.

    Attributes:
        load: Sums over the requests taken so far.
        is_short: The step is filled as one that ends too soon for a stop to be worth it.
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
        super().__init__(snapshot)
        self.snapshot = snapshot
        self.model = self._plain = model
        self.load = StepLoad()
        self.page_tokens = snapshot.resources.page_tokens
        self.num_online = 0
        self.num_offline = 0
        self.has_unmixable = self.is_short = False
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
        self._restores: list[Restore] = []

    def predicted_s(self) -> float:
        """Predicted duration of the requests taken so far."""
        return self.model.predict(self.load)

    def runs_eager(self, mode: SafepointMode) -> bool:
        """Whether a step that is armed so leaves the graphs, and is not filled as one that does."""
        return mode in self.snapshot.limits.eager_modes and self.model.eager is not self.model

    def run_eager(self) -> None:
        """From here on the step is filled as one that runs outside graphs."""
        self.model = self._plain.eager

    def bounded_s(self, budget_s: float) -> float:
        """What may be predicted of a step that is to end within the budget."""
        return (budget_s - self.snapshot.overhead_s) / self._quantile

    def budget_for(self, predicted_s: float) -> float:
        """The budget whose bound is a predicted length."""
        return self.snapshot.overhead_s + predicted_s * self._quantile

    def budget_of(self, slack_s: float, quantile: float) -> float:
        """The budget whose bound is that of a slack with a quantile of its own."""
        if quantile == self._quantile:
            return slack_s
        overhead_s = self.snapshot.overhead_s
        return overhead_s + (slack_s - overhead_s) * self._quantile / quantile

    def decode_pages(self, request: Request) -> int:
        """Device pages one more token of a decoding request takes."""
        return -(-(request.computed_tokens + 1) // self.page_tokens) - request.device_pages

    def next_pages(self, request: Request) -> int:
        """Device pages that the next step's token takes, for a decoding request of this step."""
        return pages_for(request.computed_tokens + 2, self.page_tokens) - pages_for(
            request.computed_tokens + 1, self.page_tokens
        )

    def decode(self, request: Request, budget_s: float) -> bool:
        """Take one decode token; False if pages, the batch size or time do not allow it."""
        if budget_s != math.inf:
            # Requests that are too slow are the many; they are sent away before anything is summed.
            predicted_s = self.model.predict_with_decode(self.load, request.computed_tokens)
            if predicted_s > self.bounded_s(budget_s):
                return False
        return self.decode_run(DecodeReady([request], self.page_tokens), budget_s) == 1

    def decode_run(self, ready: DecodeReady, budget_s: float) -> int:
        """Take requests from the front as long as they fit; returns how many.

        The same requests as taking them one by one, because neither pages nor predicted time ever
        shrink when a request joins; but a full step costs a few sums instead of a call per request.
        """
        fit = requests_with_pages(ready.pages, self._may_join(ready), self.pages_left)
        if budget_s == math.inf:
            self.load = with_requests(self.load, ready, fit)
        else:
            bound_s = self.bounded_s(budget_s)
            fit, self.load = requests_that_fit(self.model, self.load, ready, fit, bound_s)
        self.pages_left -= ready.pages.front(fit)
        self._taken_runs.append(ready.rids[:fit])
        self._decode += self._taken_runs[-1]
        self.requests_left -= fit
        if not (ready.can_mix or all(request.can_mix for request in ready.requests[:fit])):
            self.has_unmixable = True
        if ready.is_online:
            self.num_online += fit
        else:
            self.num_offline += fit
        return fit

    def _may_join(self, ready: DecodeReady) -> int:
        """How many requests from the front may share the step, pages and time aside."""
        room = max(0, min(len(ready.requests), self.requests_left))
        if not self._prefill or room == 0:
            return room
        if self.has_unmixable or not self.snapshot.limits.can_mix:
            return 0
        if ready.can_mix:
            return room
        return next(
            (i for i, request in enumerate(ready.requests[:room]) if not request.can_mix), room
        )

    def chunk_room(self, request: Request, budget_s: float, keep_pages: int = 0) -> int:
        """Prompt tokens of ``request`` that could be taken now, 0 if none.

        A chunk that does not finish the prompt ends where the step fills a captured graph, and on a
        page boundary.
        """
        if self.requests_left <= 0 or (self._decode and not self._may_mix(request)):
            return 0
        holds_slot = request.phase in SLOT_PHASES
        if not holds_slot and not self.has_slot_for(request):
            return 0
        start = request.computed_tokens if holds_slot else request.cached_tokens
        remaining = request.fill_tokens - start
        limit = min(remaining, self.chunk_left)
        room_pages = self.pages_left - keep_pages + request.device_pages
        limit = min(limit, room_pages * self.page_tokens - start)
        if limit <= 0:
            return 0
        if budget_s != math.inf:
            limit = self.model.max_tokens(self.load, start, limit, self.bounded_s(budget_s))
        if 0 < limit < remaining:
            if self.snapshot.limits.eager_modes:  # there are graphs that others are replayed from
                limit = self.model.whole_tokens(self.load, start, limit)
            limit = (start + limit) // self.page_tokens * self.page_tokens - start
        return max(0, limit)

    def chunk(self, request: Request, budget_s: float, keep_pages: int = 0) -> int:
        """Take as many prompt tokens of ``request`` as fit; returns how many."""
        num_tokens = self.chunk_room(request, budget_s, keep_pages)
        if num_tokens == 0:
            return 0
        self.pages_left -= new_pages(request, num_tokens, self.page_tokens)
        if request.phase not in SLOT_PHASES:
            self.take_slot(request)
        self.chunk_left -= num_tokens
        self.load.add_chunk(num_tokens, request.start_tokens)
        self._prefill.append(Chunk(request.rid, num_tokens))
        self._take(request)
        return num_tokens

    def retract(self, request: Request) -> int:
        """Take slot and pages from ``request``; returns the device pages gained."""
        gained = self.release.add(request)
        self.coming.add(request)
        self.pages_left += gained
        self.slots_left += 1
        if request.request_class is not ONLINE:
            self.offline_slots_left += 1
        self._retracts.append(request.rid)
        self._taken.add(request.rid)
        # The unfinished page goes to the host with the retract, and maybe the one before it.
        self.host_left -= 2
        return gained

    def cut(self, request: Request, num_pages: int) -> int:
        """Take a request's last device pages: as many as asked for, a few more, or all but one.

        Returns:
            The device pages gained; 0 if its end cannot be taken alone, or the copies do not fit.
        """
        host_page = self.snapshot.resources.host_page_tokens
        block = math.lcm(host_page, self.page_tokens)
        kept = max(block, (request.computed_tokens - num_pages * self.page_tokens) // block * block)
        moved, claimed = pages_cut(request, kept, host_page)
        if kept >= request.computed_tokens or moved > self.copy_left or claimed > self.host_left:
            return 0
        gained = request.device_pages - pages_for(kept, self.page_tokens)
        self.pages_left += gained
        self.copy_left -= moved
        self.host_left -= claimed
        self._cuts.append(Retract(request.rid, kept))
        self._taken.add(request.rid)
        return gained

    def rest(self, request: Request) -> None:
        """Leave the request out of this step: it gives up its pages after its last result."""
        self._resting.add(request.rid)
        self._taken.add(request.rid)
        self.coming_pages += self.coming.add(request)
        self.coming_slots += 1

    def restore(self, request: Request, keep_pages: int = 0) -> int:
        """Order the next host pages of ``request`` back; returns how many host pages."""
        host_page = self.snapshot.resources.host_page_tokens
        begin = request.restored_pages
        if begin == 0 and not self.has_slot_for(request):
            return 0
        total = pages_for(request.host_tokens, host_page)
        num_pages = min(total - begin, self.copy_left)
        if num_pages <= 0:
            return 0
        tokens = min((begin + num_pages) * host_page, request.host_tokens)
        pages = max(0, pages_for(tokens, self.page_tokens) - request.device_pages)
        if pages > self.pages_left - keep_pages:
            return 0
        self.pages_left -= pages
        self.copy_left -= num_pages
        if begin == 0:
            self.take_slot(request)
        self._restores.append(Restore(request.rid, begin, num_pages))
        self._taken.add(request.rid)
        return num_pages

    def checkpoint(self, wanted: Iterable[tuple[Request, int]]) -> bool:
        """Order the next so many uncopied pages of each to the host; False once room is used up."""
        for request, asked in wanted:
            num_pages = min(asked, self.copy_left, self.host_left)
            if num_pages > 0:
                self.copy_left -= num_pages
                self.host_left -= num_pages
                begin = request.host_pages + request.host_pages_pending
                self._checkpoints.append(Checkpoint(request.rid, begin, num_pages))
            if num_pages < asked:
                return False
        return True

    def build(self, budget_s: float, safepoints: Safepoints = UNARMED) -> StepPlan:
        """Close the step. Every slot holder that could run and was not taken is parked."""
        running, left = self.snapshot.running, []
        if len(self._decode) < len(running):  # not the usual full step
            taken = self.taken - self._resting
            left = [request for request in running if request.rid not in taken]
        parks = tuple([request.rid for request in left if request.phase is not Phase.RESTORING])
        eager = safepoints.mode in self.snapshot.limits.eager_modes
        self.model = self._plain.eager if eager else self._plain
        return StepPlan(
            step_id=self.snapshot.step_id,
            decode=tuple(self._decode),
            prefill=tuple(self._prefill),
            parks=parks,
            retracts=tuple(self._retracts),
            cuts=tuple(self._cuts),
            checkpoints=tuple(self._checkpoints),
            restores=tuple(self._restores),
            safepoints=safepoints,
            predicted_s=self.predicted_s(),
            budget_s=budget_s,
            calibration=self.model.slowdown,
        )

    def untaken(self, ready: DecodeReady) -> DecodeReady:
        """Those of the requests the step has no act for yet."""
        # Decoding requests are decoded or retracted; other acts are for requests in other phases.
        num_taken = self.num_online if ready.is_online else self.num_offline
        if not num_taken and not self.makes_room:
            return ready
        taken = self.taken
        return DecodeReady(
            [request for request in ready.requests if request.rid not in taken], self.page_tokens
        )

    @property
    def taken(self) -> set[str]:
        """Ids of all requests with an act in this step; a full step needs the set nowhere."""
        if self._taken_runs:
            self._taken.update(*self._taken_runs)
            self._taken_runs.clear()
        return self._taken

    @property
    def retracted(self) -> list[str]:
        """Ids of the requests this step retracts."""
        return self._retracts

    @property
    def makes_room(self) -> bool:
        """Whether requests give pages up in this step, or rest in order to do so."""
        return bool(self._retracts or self._cuts or self._resting)

    @property
    def is_empty(self) -> bool:
        """Whether no token has been taken yet."""
        return not self._decode and not self._prefill

    def chunk_tokens_of(self, request: Request) -> int:
        """Prompt tokens of ``request`` that have been taken."""
        return next((chunk.num_tokens for chunk in self._prefill if chunk.rid == request.rid), 0)

    @property
    def has_chunks(self) -> bool:
        """Whether prompt tokens have been taken."""
        return bool(self._prefill)

    @property
    def has_decode(self) -> bool:
        """Whether decoding requests have been taken."""
        return bool(self._decode)

    def _may_mix(self, request: Request) -> bool:
        return self.snapshot.limits.can_mix and request.can_mix and not self.has_unmixable

    def _take(self, request: Request) -> None:
        self.requests_left -= 1
        self._taken.add(request.rid)
        if not request.can_mix:
            self.has_unmixable = True
        if request.request_class is ONLINE:
            self.num_online += 1
        else:
            self.num_offline += 1
