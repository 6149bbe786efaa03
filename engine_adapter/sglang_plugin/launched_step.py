"""What was launched, row by row: enough to undo it, or to skip rows when its result comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from engine_adapter.core.plan import StepPlan
from engine_adapter.sglang_plugin.live_rows import LiveRow


@dataclass(slots=True, eq=False)
class RowSpan:
    """KV positions ``[start, end)`` one decode row computes in one step.

    There is one per row and step, hundreds in a full one, so it holds nothing else.

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

    ``spans`` is in batch order: chunks first, then decode rows, as in ``batch.reqs``.

    Attributes:
        plan: The plan it carries out.
        batch: SGLang's batch object.
        spans: One per row.
        started_at_s: Launch, monotonic clock.
        measure: Gives the duration of the forward pass once its result is there.
        measured_s: What it gave.
        stopped_at_layer: Layer of an abort or a drop.
        flag_to_stop_s: Time from the stop word to the stop.
        dropped: Batch positions whose work was undone.
        offline_positions: Batch positions of flex and offline rows.
    """

    plan: StepPlan
    batch: Any
    spans: list[RowSpan | ChunkSpan]
    started_at_s: float = 0.0
    measure: Callable[[], float] = float
    measured_s: float = 0.0
    stopped_at_layer: int | None = None
    flag_to_stop_s: float = 0.0
    dropped: set[int] = field(default_factory=set)
    offline_positions: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Note the batch positions of flex and offline rows."""
        self.offline_positions = [i for i, span in enumerate(self.spans) if not span.live.is_online]

    @property
    def kept_positions(self) -> list[int]:
        """Batch positions whose work counts."""
        return [i for i in range(len(self.spans)) if i not in self.dropped]

    def tokens(self, *, online: bool) -> int:
        """Tokens computed and kept for one side."""
        return sum(
            span.end - span.start
            for i, span in enumerate(self.spans)
            if i not in self.dropped and span.live.is_online is online
        )
