"""An exception that one request causes ends that request, and not the engine.

A step that raises, while its batch is built, in its pass or in sampling, is undone as a stopped one
is, and the pools are checked. Then its requests are run again in halves of halves, until those that
raise stand alone::

    a b c d  raises        undone: nothing of the step is left
    a b      passes
        c d  raises
        c    raises        c is answered with an error
          d  passes        everyone else goes on, with the tokens it would have had

The engine ends, as it would without all this, where nothing can be said of one request:

- the pools do not add up after the undo, or a token of the step was relayed already,
- no request raises when it is alone, or none passes beside those that raise; a request that was
  alone from the start is believed only if a step has passed since the last one that was ended,
- several ranks share the pass: one of them may have raised, and the others not.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.schedule_batch import FINISH_ABORT

from api.engine_errors import FAILED_ALONE
from engine_adapter.scheduling.driver import PlanRejected, check_plan
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.counters import Counters
from engine_adapter.sglang.live_requests import LaunchedStep, LiveRequests
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler

logger = logging.getLogger(__name__)
MOST_IN_VAIN = 3
"""Searches that may find nobody because requests ended in between, before the engine ends."""


def fail_alone(req: Any, error: Exception) -> None:
    """Have a request answered with an error when the queue is looked at next."""
    logger.error("coserve: request %s fails alone", req.rid, exc_info=error)
    req.to_finish = FINISH_ABORT(FAILED_ALONE, HTTPStatus.BAD_REQUEST, "BadRequestError")


@dataclass(slots=True)
class _Search:
    """Looks for the requests of one step that raise alone.

    Attributes:
        first: What the whole step raised.
        num_requests: Requests of the whole step.
        todo: Parts of it that are still to run.
        failed: Requests that raised alone, and what.
        num_passed: Parts that ran.
        is_cut: Not every part could be run: requests ended in between, or do not fit any more.
    """

    first: Exception
    num_requests: int
    todo: deque[StepPlan] = field(default_factory=deque)
    failed: dict[str, Exception] = field(default_factory=dict)
    num_passed: int = 0
    is_cut: bool = False


class Confinement:
    """Finds whom an exception belongs to."""

    def __init__(self, scheduler: Scheduler, requests: LiveRequests, counters: Counters) -> None:
        """Watch the steps of this scheduler."""
        self._scheduler = scheduler
        self._requests = requests
        self._counters = counters
        self._search: _Search | None = None
        self._running: LaunchedStep | None = None
        self._passed_since_an_end = False
        self._num_in_vain = 0

    @property
    def is_searching(self) -> bool:
        """Whether parts of a step that raised are still to run."""
        return self._search is not None

    def passed(self) -> None:
        """The result of a step was processed."""
        self._passed_since_an_end = True

    def failed(self, step: LaunchedStep) -> None:
        """A step raised and was undone.

        Raises:
            Exception: What it raised, if that cannot be put down to a request.
        """
        error = step.failure
        assert error is not None
        self._prove_sound(step, error)
        plan, self._running = step.plan, None
        num = len(plan.prefill) + len(plan.decode)
        if self._search is None:
            logger.warning("coserve: step %d of %d requests raised", plan.step_id, num)
            self._search = _Search(error, num)
        if num == 1:
            self._search.failed[_rids(plan)[0]] = error
        else:
            self._search.todo.extend(_halves(plan))

    def next_part(self, snapshot: Snapshot) -> StepPlan:
        """The next part to run; an empty plan when none of what is left can be run any more."""
        search = self._search
        assert search is not None
        while search.todo:
            whole = search.todo.popleft()
            part = _still_live(whole, snapshot)
            search.is_cut |= len(_rids(part)) < len(_rids(whole))
            if part.is_empty:
                continue
            try:
                check_plan(part, snapshot)
            except PlanRejected:
                search.is_cut = True
                continue
            return part
        return StepPlan(step_id=snapshot.step_id)

    def ran(self, step: LaunchedStep | None) -> None:
        """A part was composed; whether its pass or sampling raises is known at the next one."""
        if self._search is not None:
            self._running = step
            self._search.is_cut |= step is None

    def conclude(self) -> bool:
        """Between two steps: end the requests that raised alone, if the search is over.

        Returns:
            Whether requests were told to end.

        Raises:
            Exception: What the whole step raised, if nothing can be said of one request.
        """
        search = self._search
        if search is None:
            return False
        if self._running is not None:
            search.num_passed += 1
            self._running = None
        if search.todo:
            return False
        self._search = None
        if not search.failed and search.is_cut and self._num_in_vain < MOST_IN_VAIN:
            self._num_in_vain += 1
            return False  # whoever it was may be gone
        is_believed = search.num_passed > 0 or (
            search.num_requests == 1 and self._passed_since_an_end
        )
        if not search.failed or not is_believed:
            raise search.first
        self._num_in_vain = 0
        for rid, error in search.failed.items():
            live = self._requests.get(rid)
            if live is not None:
                fail_alone(live.req, error)
                self._counters.failed_requests += 1
        self._passed_since_an_end = search.num_passed > 0
        return True

    def _prove_sound(self, step: LaunchedStep, error: Exception) -> None:
        """Hold the pools and our table against what SGLang says.

        Raises:
            Exception: What the step raised, if it left something behind.
        """
        s = self._scheduler
        if seam.num_ranks(s) > 1 or step.is_final:
            raise error
        try:
            if s.device == "cuda":
                torch.cuda.synchronize()  # a device that has failed says so here
            s.invariant_checker.self_check_during_busy()
            s.invariant_checker._check_kv_page_invariants()
        except Exception as unsound:
            raise error from unsound
        for live in self._requests.holding.values():
            req = live.req
            if not seam.holds_kv(req) or live.request.computed_tokens != seam.kv_len(req):
                raise error


def _rids(plan: StepPlan) -> tuple[str, ...]:
    return (*(chunk.rid for chunk in plan.prefill), *plan.decode)


def _halves(plan: StepPlan) -> Iterator[StepPlan]:
    """Half of the requests, and the other half; nothing else of the plan is done again."""
    rids = _rids(plan)
    for half in (rids[: len(rids) // 2], rids[len(rids) // 2 :]):
        chosen = frozenset(half)
        yield StepPlan(
            step_id=plan.step_id,
            prefill=tuple(chunk for chunk in plan.prefill if chunk.rid in chosen),
            decode=tuple(rid for rid in plan.decode if rid in chosen),
            predicted_s=plan.predicted_s,
        )


def _still_live(part: StepPlan, snapshot: Snapshot) -> StepPlan:
    """The part as a plan for this snapshot, without requests that have ended."""
    requests = snapshot.requests
    return StepPlan(
        step_id=snapshot.step_id,
        prefill=tuple(chunk for chunk in part.prefill if chunk.rid in requests),
        decode=tuple(rid for rid in part.decode if rid in requests),
        predicted_s=part.predicted_s,
    )
