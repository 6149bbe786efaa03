"""Size and abilities of the engine in memory, and the records it keeps of a launched step."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.plan import Outcome, StepPlan
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.scheduling.snapshot import EngineLimits


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Size and abilities of the engine.

    Attributes:
        total_pages: Device pages.
        page_tokens: Tokens per device page.
        host_total_pages: Host pages of ``host_page_tokens`` tokens.
        host_page_tokens: Tokens per host page.
        total_slots: Request slots.
        reserved_share: Share of the slots kept for online requests.
        copy_pages_per_step: Host pages moved per step.
        page_copy_s: Time the host link takes for one host page, each direction by itself; 0 lets
            every copy end with its step.
        delay_steps: Steps after which a result is processed; 0 or 1.
        overhead_s: Time between two forward passes.
        most_groups: Layer groups of a step that may be launched and not finished.
        keeps_prompts: The prefix tree keeps every prompt until pages are short, as SGLang's does.
        limits: What the executor can do.
    """

    total_pages: int = 1024
    page_tokens: int = 16
    host_total_pages: int = 4096
    host_page_tokens: int = 16
    total_slots: int = 24
    reserved_share: float = 0.25
    copy_pages_per_step: int = 64
    page_copy_s: float = 0.0
    delay_steps: int = 0
    overhead_s: float = 0.0
    most_groups: int = 1
    keeps_prompts: bool = False
    limits: EngineLimits = field(default_factory=EngineLimits)


@dataclass(slots=True)
class Track:
    """What is remembered of a request, also after its end.

    Attributes:
        request: The request.
        arrived_at_s: Its arrival.
        answer_tokens: Tokens after which it ends.
        times: When each of its tokens was delivered.
        seen: Tokens with KV at the most so far: what is computed again below is no progress.
        cached: Prompt tokens found in the prefix cache when it first started; -1 before.
        retractions: How often its KV was taken away.
        newest_step: The last step it was launched in.
        void_until: Results of steps up to this one are thrown away; -1 if none are.
        over: It has got its last token, or was aborted.
    """

    request: Request
    arrived_at_s: float
    answer_tokens: int
    times: list[float] = field(default_factory=list)
    seen: int = 0
    cached: int = -1
    retractions: int = 0
    newest_step: int = -1
    void_until: int = -1
    over: bool = False


@dataclass(slots=True)
class ChunkWork:
    """A request's chunk of a launched step and how to undo it."""

    request: Request
    track: Track
    num_tokens: int
    before_tokens: int
    before_phase: Phase
    delivers: bool


@dataclass(slots=True)
class Composed:
    """A step that has its pages and is not launched yet.

    Attributes:
        plan: What was asked for.
        decode: Its decoding requests, as they are tracked.
        ends: Tokens with KV of each of them after the step.
        chunks: Its prompt chunks.
    """

    plan: StepPlan
    decode: list[Track]
    ends: list[int]
    chunks: list[ChunkWork]


@dataclass(slots=True)
class Launched:
    """A step whose result is not processed yet.

    Attributes:
        plan: What was asked for.
        decode: Its decoding requests, as they are tracked.
        ends: Tokens with KV of each of them after the step.
        chunks: Its prompt chunks.
        outcome: What it did.
        ended_at_s: When.
    """

    plan: StepPlan
    decode: list[Track]
    ends: list[int]
    chunks: list[ChunkWork]
    outcome: Outcome
    ended_at_s: float


def load_of(ends: list[int], chunks: list[ChunkWork]) -> StepLoad:
    """The sums the latency model looks at; ``ends`` as in :class:`Launched`."""
    load = StepLoad(len(ends), sum(ends), sum([end * end for end in ends]))
    for work in chunks:
        load.add_chunk(work.num_tokens, work.before_tokens)
    return load
