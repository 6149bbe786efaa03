from __future__ import annotations

from engine_adapter.scheduling.request import Phase, RequestClass, RequestRow
from engine_adapter.sglang.batch_states import states_by_batch


def row(rid: str, batch_id: str, phase: Phase) -> RequestRow:
    made = RequestRow(
        rid=rid,
        request_class=RequestClass.OFFLINE if batch_id else RequestClass.ONLINE,
        prompt_tokens=8,
        fill_tokens=8,
        max_output_tokens=8,
        arrival_at_s=0.0,
        batch_id=batch_id,
    )
    made.phase = phase
    return made


def test_each_batch_has_its_requests_by_state() -> None:
    rows = [
        row("a", "batch_1", Phase.DECODE),
        row("b", "batch_1", Phase.DECODE),
        row("c", "batch_1", Phase.PREFILL),
        row("d", "batch_1", Phase.WAITING),
        row("e", "batch_1", Phase.RETRACTED),
        row("f", "batch_2", Phase.DECODE),
        row("g", "", Phase.DECODE),
    ]
    assert states_by_batch(rows, {"b", "g"}) == {"batch_1": [2, 1, 2], "batch_2": [1, 0, 0]}
    assert states_by_batch([], ()) == {}
