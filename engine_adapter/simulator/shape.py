"""Size and abilities of the engine in memory, and the records it keeps of a launched step."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine_adapter.core.outcome import Outcome
from engine_adapter.core.plan import StepPlan
from engine_adapter.core.request import Phase, RequestRow
from engine_adapter.core.snapshot import EngineLimits
from engine_adapter.latency.load import StepLoad


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Size and abilities of the engine.

    Attributes:
        total_pages: Device pages.
        page_tokens: Tokens per device page.
        host_total_pages: Host pages of ``host_page_tokens`` tokens.
        host_page_tokens: Tokens per host page.
        total_slots: Request slots.
        reserved_share: Share of the slots kept for online rows.
        copy_pages_per_step: Host pages moved per step.
        delay_steps: Steps after which a result is processed; 0 or 1.
        limits: What the executor can do.
    """

    total_pages: int = 1024
    page_tokens: int = 16
    host_total_pages: int = 4096
    host_page_tokens: int = 16
    total_slots: int = 24
    reserved_share: float = 0.25
    copy_pages_per_step: int = 64
    delay_steps: int = 0
    limits: EngineLimits = field(default_factory=EngineLimits)


@dataclass(slots=True)
class Work:
    """A row's part of a launched step and how to undo it."""

    row: RequestRow
    num_tokens: int
    before_tokens: int
    before_phase: Phase
    delivers: bool


@dataclass(slots=True)
class Launched:
    """A step whose result is not processed yet."""

    plan: StepPlan
    works: list[Work]
    outcome: Outcome
    ended_at_s: float


def load_of(works: list[Work]) -> StepLoad:
    """The sums the latency model looks at."""
    load = StepLoad()
    for work in works:
        if work.before_phase is Phase.DECODE:
            load.add_decode(work.before_tokens)
        else:
            load.add_chunk(work.num_tokens, work.before_tokens)
    return load
