"""What was launched, row by row: enough to undo it, or to skip rows when its result comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.request import RequestClass
from engine_adapter.sglang.live_rows import LiveRow

FLEX = RequestClass.FLEX


@dataclass(slots=True, eq=False)
class RowSpan:
    """KV positions ``[start, end)`` one decoding request computes in one step.

    Attributes:
        live: The row.
        start: KV length before the step.
        end: KV length after it.
    """

    live: LiveRow
    start: int
    end: int
    decode: ClassVar[bool] = True
    fresh: ClassVar[bool] = False
    middle: ClassVar[bool] = False


@dataclass(slots=True, eq=False)
class ChunkSpan:
    """KV positions ``[start, end)`` of a prompt one step computes.

    Attributes:
        live: The row.
        start: KV length before the step.
        end: KV length after it.
        fresh: The step gave the row its slot.
        middle: A chunk that is not the last one: its sampled token is thrown away.
        cached_tokens: SGLang's prefix-hit statistic before the step, restored on undo.
        already_computed: Likewise.
        breakdown_computed: Likewise.
    """

    live: LiveRow
    start: int
    end: int
    fresh: bool
    middle: bool
    cached_tokens: int
    already_computed: int
    breakdown_computed: bool
    decode: ClassVar[bool] = False


@dataclass(slots=True, eq=False)
class LaunchedStep:
    """One step between its composition and the processing of its result.

    Batch order, as in ``batch.reqs``: chunks first, then decoding requests.

    Attributes:
        plan: The plan it carries out.
        batch: SGLang's batch object.
        chunks: One per chunk.
        decodes: The decoding requests.
        ends: KV length of each decoding request after the step; it computes one token.
        started_at_s: Launch, monotonic clock.
        measure: Gives the duration of the forward pass once its result is there.
        measured_s: What it gave.
        stopped_at_layer: Layer of an abort or a drop.
        flag_to_stop_s: Time from the stop word to the stop.
        online_gap_s: Longest gap between two tokens of an online request that it gave one.
        dropped: Batch positions whose work was undone.
        lives: All rows, in batch order.
    """

    plan: StepPlan
    batch: Any
    chunks: list[ChunkSpan]
    decodes: list[LiveRow]
    ends: list[int]
    started_at_s: float = 0.0
    measure: Callable[[], float] = float
    measured_s: float = 0.0
    stopped_at_layer: int | None = None
    flag_to_stop_s: float = 0.0
    online_gap_s: float = 0.0
    dropped: set[int] = field(default_factory=set)
    lives: list[LiveRow] = field(init=False)
    _spans: list[RowSpan | ChunkSpan] | None = None
    _offline_positions: list[int] | None = None

    def __post_init__(self) -> None:
        """Put the rows in batch order."""
        self.lives = [*[span.live for span in self.chunks], *self.decodes]

    @property
    def spans(self) -> list[RowSpan | ChunkSpan]:
        """One per row; made when first asked for, since few steps are stopped."""
        if self._spans is None:
            starts = [end - 1 for end in self.ends]
            self._spans = [*self.chunks, *map(RowSpan, self.decodes, starts, self.ends)]
        return self._spans

    @property
    def offline_positions(self) -> list[int]:
        """Batch positions of flex and offline requests."""
        if self._offline_positions is None:
            self._offline_positions = [i for i, live in enumerate(self.lives) if not live.is_online]
        return self._offline_positions

    @property
    def kept_positions(self) -> list[int]:
        """Batch positions whose work counts."""
        return [i for i in range(len(self.lives)) if i not in self.dropped]

    @property
    def is_as_planned(self) -> bool:
        """Whether it computes what was planned: a prefix hit or an end may have come between."""
        num_tokens = sum(span.end - span.start for span in self.chunks) + len(self.decodes)
        return num_tokens == self.plan.num_tokens

    def tokens(self, *, online: bool) -> int:
        """Tokens computed and kept for one side."""
        num_chunks = len(self.chunks)
        num_tokens = sum(
            span.end - span.start
            for i, span in enumerate(self.chunks)
            if i not in self.dropped and span.live.is_online is online
        )
        offline = [i for i in self.offline_positions if i >= num_chunks]
        num_decodes = len(self.decodes) - len(offline) if online else len(offline)
        dropped = [i for i in self.dropped if i >= num_chunks]
        return num_tokens + num_decodes - sum(self.lives[i].is_online is online for i in dropped)

    def flex_tokens(self) -> int:
        """Tokens computed and kept for flex requests."""
        flex = [i for i in self.offline_positions if self.lives[i].row.request_class == FLEX]
        num_chunks = len(self.chunks)
        return sum(
            self.chunks[i].end - self.chunks[i].start if i < num_chunks else 1
            for i in flex
            if i not in self.dropped
        )

    def recomputed_tokens(self, *, online: bool) -> int:
        """Those of them that had been computed before a retract."""
        return sum(
            max(0, min(span.end, span.live.had_tokens) - span.start)
            for i, span in enumerate(self.chunks)
            if i not in self.dropped and span.live.is_online is online
        )
