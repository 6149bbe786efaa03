"""What a step shall do: a decision as plain data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_adapter.scheduling.request import RequestClass
from engine_adapter.scheduling.targets import Slo


class StepKind(enum.StrEnum):
    """Which executor runs the step; each has its own latency fit."""

    IDLE = "idle"
    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"


class SafepointMode(enum.StrEnum):
    """What a stop word does to the step while it runs."""

    NONE = "none"
    ABORT = "abort"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute the next ``num_tokens`` prompt tokens of ``rid``.

    A request without a slot gets one by being named here.
    """

    rid: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Copy host pages ``[from_page, from_page + num_pages)`` of ``rid`` to the host pool."""

    rid: str
    from_page: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Bring host pages ``[from_page, from_page + num_pages)`` of ``rid`` back to the device.

    The first order (``from_page == 0``) also gives the request a slot.
    """

    rid: str
    from_page: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class Retract:
    """Take device pages of ``rid`` from its end; the first ``keep_tokens`` stay, as does its slot.

    What is not on the host is copied there first. The request is fetched again before it goes on.
    """

    rid: str
    keep_tokens: int


@dataclass(frozen=True, slots=True)
class Safepoints:
    """Whether the step may be stopped between layers, and how often it looks."""

    mode: SafepointMode = SafepointMode.NONE
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that changes with one step.

    Applied in this order: retracts, cuts, restores, checkpoints, then the forward pass over
    ``decode`` and ``prefill``. Requests that hold a slot and are named nowhere keep their KV and
    wait; those among them that decoded or prefilled before are listed in ``parks``.

    Attributes:
        step_id: The snapshot's step id.
        decode: Requests that compute one token, online first.
        prefill: Prompt tokens to compute, online first.
        parks: Slot holders able to run that are left out of this step.
        retracts: Requests that give up slot and device pages.
        cuts: Requests that give up their last device pages alone.
        checkpoints: Copies to the host pool.
        restores: Copies back from it.
        safepoints: Armed mode while the step runs.
        predicted_s: Predicted duration.
        budget_s: Bound the plan was filled to; infinite without an SLO bound.
        calibration: Factor in the prediction by which steps of this kind differed from their
            profile of late.
    """

    step_id: int
    decode: tuple[str, ...] = ()
    prefill: tuple[Chunk, ...] = ()
    parks: tuple[str, ...] = ()
    retracts: tuple[str, ...] = ()
    cuts: tuple[Retract, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    restores: tuple[Restore, ...] = ()
    safepoints: Safepoints = Safepoints()
    predicted_s: float = 0.0
    budget_s: float = 0.0
    calibration: float = 1.0

    @property
    def kind(self) -> StepKind:
        """Which executor this plan needs."""
        if self.decode:
            return StepKind.MIXED if self.prefill else StepKind.DECODE
        return StepKind.PREFILL if self.prefill else StepKind.IDLE

    @property
    def is_empty(self) -> bool:
        """Whether no token is computed."""
        return not self.decode and not self.prefill

    @property
    def num_tokens(self) -> int:
        """Tokens computed by the step."""
        return len(self.decode) + sum(chunk.num_tokens for chunk in self.prefill)

    def to_plain(self) -> dict[str, Any]:
        """Lists, strings and numbers only: what travels from rank 0 to the other ranks."""
        return {
            "step_id": self.step_id,
            "decode": list(self.decode),
            "prefill": [[c.rid, c.num_tokens] for c in self.prefill],
            "parks": list(self.parks),
            "retracts": list(self.retracts),
            **({"cuts": [[c.rid, c.keep_tokens] for c in self.cuts]} if self.cuts else {}),
            "checkpoints": [[c.rid, c.from_page, c.num_pages] for c in self.checkpoints],
            "restores": [[p.rid, p.from_page, p.num_pages] for p in self.restores],
            "safepoints": [str(self.safepoints.mode), self.safepoints.interval_s],
            "predicted_s": self.predicted_s,
            "budget_s": self.budget_s,
            "calibration": self.calibration,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StepPlan:
        """The inverse of :meth:`to_plain`."""
        mode, interval_s = plain["safepoints"]
        return cls(
            step_id=plain["step_id"],
            decode=tuple(plain["decode"]),
            prefill=tuple(Chunk(*chunk) for chunk in plain["prefill"]),
            parks=tuple(plain["parks"]),
            retracts=tuple(plain["retracts"]),
            cuts=tuple(Retract(*cut) for cut in plain.get("cuts", ())),
            checkpoints=tuple(Checkpoint(*order) for order in plain["checkpoints"]),
            restores=tuple(Restore(*order) for order in plain["restores"]),
            safepoints=Safepoints(SafepointMode(mode), interval_s),
            predicted_s=plain["predicted_s"],
            budget_s=plain["budget_s"],
            calibration=plain["calibration"],
        )


# --- An arrival during a step, and the answer to it.


class Decision(enum.StrEnum):
    """What the running step is told."""

    CONTINUE = "continue"
    STOP_AT_NEXT_SAFEPOINT = "stop_at_next_safepoint"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request seen by the monitor while a step runs.

    Attributes:
        request_class: Its class.
        prompt_tokens: Tokens of its prompt that have to be computed: all but a cached prefix.
        at_s: Instant it was seen (monotonic clock of the port).
        earlier_prompt_tokens: Prompt tokens of the online requests that arrived before it during
            the same step; the monitor adds them up.
    """

    request_class: RequestClass
    prompt_tokens: int
    at_s: float
    earlier_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RunningStep:
    """What is published when a step is launched; never changed afterwards.

    Attributes:
        step_id: Id of the launched step; a stop word for another id is ignored.
        kind: Executor of the step.
        started_at_s: Instant of launch, or when a device that is behind the host will begin it.
        predicted_s: Predicted duration.
        num_offline_requests: Flex and offline requests in the step.
        num_online_requests: Online requests in the step.
        safepoints: What a stop would do, and how far apart the safepoints are.
        queued_online_tokens: Online prompt tokens that were already waiting at launch and are
            not part of the step.
        slo: Targets of the online class.
    """

    step_id: int
    kind: StepKind
    started_at_s: float
    predicted_s: float
    num_offline_requests: int
    num_online_requests: int
    safepoints: Safepoints
    queued_online_tokens: int
    slo: Slo


# --- What a step did, told once it is known, which may be one step later.


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measured result of one step.

    Attributes:
        step_id: The step it belongs to.
        measured_s: Duration of the forward pass (events on CUDA, wall time on CPU).
        online_tokens: Tokens computed for online requests.
        offline_tokens: Tokens computed for flex and offline requests.
        stopped_at_layer: Layer at which a safepoint stopped the step, or None.
        dropped: Ids whose work in this step was thrown away.
        flag_to_stop_s: Time from the stop word to a device that is free, when there was a stop.
        online_gap_s: Longest gap, up to its end, between two tokens of an online request that it
            gave one; 0 if it gave none a second token.
        timing_valid: False when the duration says nothing about the model: an engine's first
            steps, and those that computed less than was planned.
    """

    step_id: int
    measured_s: float
    online_tokens: int = 0
    offline_tokens: int = 0
    stopped_at_layer: int | None = None
    dropped: tuple[str, ...] = ()
    flag_to_stop_s: float = 0.0
    online_gap_s: float = 0.0
    timing_valid: bool = True


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A plan beside its outcome: what a policy observes."""

    plan: StepPlan
    outcome: Outcome

    @property
    def is_comparable(self) -> bool:
        """Whether the measured time may be held against the prediction."""
        return (
            self.outcome.timing_valid
            and self.outcome.stopped_at_layer is None
            and self.plan.predicted_s > 0.0
            and self.outcome.measured_s > 0.0
        )
