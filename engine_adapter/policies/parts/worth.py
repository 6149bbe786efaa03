"""What offline work would cost alone, against what it adds to a step of online requests.

Compared are the profile's own predictions, see :attr:`LatencyModel.profiled`.
"""

from __future__ import annotations

from engine_adapter.core.plan import StepKind
from engine_adapter.core.ready import ReadyRows
from engine_adapter.core.request import RequestRow
from engine_adapter.latency.load import StepLoad
from engine_adapter.policies.parts.builder import PlanBuilder
from engine_adapter.policies.parts.decode_room import rows_that_fit


def chunk_worth_s(
    builder: PlanBuilder, row: RequestRow, budget_s: float, keep_pages: int, price: float
) -> float:
    """What the prompt tokens that fit would cost as part of a full chunk.

    A few tokens of a long prompt can cost nearly as much as many: the whole context is read
    again, and decode rows beside them run through the slower executor.

    Returns:
        Seconds saved later; 0 if they are less than ``price`` times those added now.
    """
    predict = builder.model.profiled.predict
    num_tokens = builder.chunk_room(row, budget_s, keep_pages)
    if num_tokens == 0:
        return 0.0
    start = row.start_tokens
    full, beside = StepLoad(), builder.load.copy()
    full.add_chunk(builder.snapshot.limits.max_chunk_tokens, start)
    beside.add_chunk(num_tokens, start)
    saved_s = num_tokens * predict(full) / full.num_tokens
    cost_s = predict(beside) - predict(builder.load)
    return saved_s if saved_s >= price * cost_s else 0.0


def decode_worth_s(builder: PlanBuilder, ready: ReadyRows, budget_s: float, price: float) -> float:
    """What the decode rows that fit would cost in a step with all slots of offline rows decoding.

    Returns:
        Seconds saved later; 0 if they are less than ``price`` times those added now.
    """
    predict, resources = builder.model.profiled.predict, builder.snapshot.resources
    kind = StepKind.MIXED if builder.has_chunks else StepKind.DECODE
    most = max(0, min(len(ready), builder.rows_left))
    bound_s = builder.bounded_s(budget_s, kind)
    taken, beside = rows_that_fit(builder.model, builder.load, ready, most, bound_s)
    if not taken:
        return 0.0
    length = (beside.decode_context - builder.load.decode_context) // taken
    slots = resources.total_slots - resources.reserved_slots
    by_pages = resources.total_pages * resources.page_tokens // length
    num_rows = max(1, len(ready), min(slots, by_pages))
    together = StepLoad(num_rows, num_rows * length, num_rows * length * length)
    cost_s = predict(beside) - predict(builder.load)
    saved_s = taken * predict(together) / together.decode_rows
    return saved_s if saved_s >= price * cost_s else 0.0
