"""An arrival during a step, and the answer to it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from engine_adapter.core.plan import Safepoints, StepKind
from engine_adapter.core.request import RequestClass
from engine_adapter.core.slo import Slo


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
        started_at_s: Instant of launch.
        predicted_s: Predicted duration.
        num_offline_rows: Flex and offline requests in the step.
        num_online_rows: Online requests in the step.
        safepoints: What a stop would do, and how far apart the safepoints are.
        queued_online_tokens: Online prompt tokens that were already waiting at launch and are
            not part of the step.
        slo: Targets of the online class.
    """

    step_id: int
    kind: StepKind
    started_at_s: float
    predicted_s: float
    num_offline_rows: int
    num_online_rows: int
    safepoints: Safepoints
    queued_online_tokens: int
    slo: Slo
