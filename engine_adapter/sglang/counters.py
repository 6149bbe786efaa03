"""What an engine has done so far, and when its passes begin and how far apart they are."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from engine_adapter.scheduling.plan import Outcome
from engine_adapter.sglang.live_requests import LaunchedStep

# An engine's first steps touch its memory for the first time; SGLang's own first request is nine.
COLD_STEPS = 10


@dataclass(slots=True)
class StopsAtLayer:
    """Passes stopped at one layer.

    Attributes:
        num: How many.
        sum_s: Time from stop word to a device that is free, added up.
    """

    num: int = 0
    sum_s: float = 0.0


@dataclass(slots=True)
class Counters:
    """Totals since start; tokens are kept tokens unless said otherwise.

    Attributes:
        steps: Steps launched.
        online_tokens: Tokens computed for online requests.
        offline_tokens: Tokens computed for flex and offline requests.
        flex_tokens: Those of ``offline_tokens`` that were computed for flex requests.
        aborts: Offline-only steps stopped between layers.
        drops: Mixed steps that lost their offline requests between layers.
        undone_requests: Requests whose work in a stopped step was thrown away.
        parks: Requests left out of a step that could have run (request steps).
        parked_requests: Requests that the newest step left out; a gauge, no total.
        retracts: Requests that gave slot and pages up.
        recomputed_tokens: Those of ``offline_tokens`` that had been computed before a retract.
        recomputed_online_tokens: Likewise those of ``online_tokens``.
        rejected_plans: Plans the driver refused.
        policy_errors: Steps at which the policy raised an error, in plans or reports.
        last_policy_error: The newest of them in words; empty without one.
        reaped_requests: Aborted requests ended without a forward pass.
        failed_requests: Requests ended because they alone made a step raise an exception.
        plan_cpu_s: Thread CPU time in snapshot, plan, check and actuate, copies of pages apart.
        step_s: Time in forward passes.
        step_cpu_s: Thread CPU time of the same passes; where a device computes, of their launches.
        predicted_s: Predicted time of the same passes.
        stops_by_layer: How many passes were stopped at each layer, and how long after the word.
        stop_layers: Layers at which passes were stopped, newest last, bounded.
        flag_to_stop_s: Time from stop word to a device that is free, newest last, bounded.
    """

    steps: int = 0
    online_tokens: int = 0
    offline_tokens: int = 0
    flex_tokens: int = 0
    aborts: int = 0
    drops: int = 0
    undone_requests: int = 0
    parks: int = 0
    parked_requests: int = 0
    retracts: int = 0
    recomputed_tokens: int = 0
    recomputed_online_tokens: int = 0
    rejected_plans: int = 0
    policy_errors: int = 0
    last_policy_error: str = ""
    reaped_requests: int = 0
    failed_requests: int = 0
    plan_cpu_s: float = 0.0
    step_s: float = 0.0
    step_cpu_s: float = 0.0
    predicted_s: float = 0.0
    stops_by_layer: dict[str, StopsAtLayer] = field(default_factory=dict)
    stop_layers: list[int] = field(default_factory=list)
    flag_to_stop_s: list[float] = field(default_factory=list)

    @property
    def is_warm(self) -> bool:
        """Whether the next step's time says something about those to come."""
        return self.steps >= COLD_STEPS

    def stopped(self, layer: int, flag_to_stop_s: float, num_requests: int) -> None:
        self.undone_requests += num_requests
        at_layer = self.stops_by_layer.setdefault(str(layer), StopsAtLayer())
        at_layer.num += 1
        at_layer.sum_s += flag_to_stop_s
        self.stop_layers = [*self.stop_layers[-255:], layer]
        self.flag_to_stop_s = [*self.flag_to_stop_s[-255:], flag_to_stop_s]

    def to_plain(self) -> dict[str, Any]:
        """Numbers, lists and dicts only."""
        return asdict(self)


# --- The newest steps, one line each, for a page that draws them.

NUM_KEPT: Final = 200


class RecentSteps:
    """A ring of finished steps."""

    def __init__(self) -> None:
        self._steps: deque[tuple[Any, ...]] = deque(maxlen=NUM_KEPT)

    def add(self, step: LaunchedStep, outcome: Outcome, flex_tokens: int) -> None:
        """Take in a finished step."""
        self._steps.append(
            (
                step.started_at_s,
                outcome.online_tokens,
                flex_tokens,
                outcome.offline_tokens - flex_tokens,
                round(step.plan.predicted_s * 1e3, 3),
                round(outcome.measured_s * 1e3, 3),
                outcome.stopped_at_layer,
            )
        )

    def to_plain(self, now_s: float) -> list[list[Any]]:
        """Oldest first.

        Each: seconds since its launch, tokens kept of online, flex and offline requests, predicted
        ms, measured ms, and the layer at which it was stopped or None.
        """
        return [[round(now_s - started_s, 3), *rest] for started_s, *rest in self._steps]


# --- Time between two forward passes: part of every gap between tokens, and no part of a pass.

WEIGHT = 0.1
LONGEST_GAP_S = 0.05


class PassGap:
    """Weighted mean of the gaps between passes that follow each other without a pause.

    Attributes:
        mean_s: The mean; 0 until two passes followed each other.
    """

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._ended_at_s: float | None = None

    def started(self, at_s: float) -> None:
        """A pass begins. Longer gaps are idle time, profiling or a stall and say nothing."""
        if self._ended_at_s is not None:
            self.add(at_s - self._ended_at_s)

    def add(self, gap_s: float) -> None:
        """Between a pass and the one before; the same is left out."""
        if 0.0 <= gap_s <= LONGEST_GAP_S:
            weight = WEIGHT if self.mean_s else 1.0
            self.mean_s += weight * (gap_s - self.mean_s)

    def ended(self, at_s: float) -> None:
        self._ended_at_s = at_s


# --- When a device begins a pass that is launched behind others.
#
# The host is ahead of the device: a pass that is launched while another one computes begins when
# that one ends::
#
#     host     launch 1        launch 2          result of 1
#     device   |---- pass 1 ----|-- copies --|---- pass 2 ----|
#                               ends as predicted, or when its result is there


@dataclass(slots=True)
class _Pass:
    step_id: int
    begins_at_s: float
    predicted_s: float


class PassesInFlight:
    """Passes that are launched and whose results are not there."""

    def __init__(self) -> None:
        self._passes: list[_Pass] = []

    def launch(self, step_id: int, now_s: float, predicted_s: float, wait_s: float = 0.0) -> float:
        """A pass is launched now; the instant at which the device begins it.

        Args:
            step_id: Its step.
            now_s: Instant of the launch.
            predicted_s: How long it will take.
            wait_s: How long it waits for the copies of its step.
        """
        free_at_s = now_s
        if self._passes:
            last = self._passes[-1]
            free_at_s = max(now_s, last.begins_at_s + last.predicted_s)
        begins_at_s = free_at_s + wait_s
        self._passes.append(_Pass(step_id, begins_at_s, predicted_s))
        return begins_at_s

    def over(self, step_id: int, now_s: float) -> None:
        """The pass of this step has ended or was stopped, and so have those in front of it."""
        behind = [i for i, one in enumerate(self._passes) if one.step_id == step_id]
        if behind:
            del self._passes[: behind[0] + 1]
            if self._passes:  # it computes already
                self._passes[0].begins_at_s = min(self._passes[0].begins_at_s, now_s)
