"""The table of live requests, and what SGLang is shown of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_adapter.scheduling.request import Phase, RequestClass, RequestRow
from engine_adapter.sglang.live_rows import HoldingView, LiveRow, LiveRows, PendingPrefill


def live(rid: str, request_class: RequestClass = RequestClass.OFFLINE, prompt: int = 40) -> LiveRow:
    row = RequestRow(rid, request_class, prompt_tokens=prompt, fill_tokens=prompt)
    return LiveRow(SimpleNamespace(rid=rid), row)


def test_a_row_waits_holds_a_slot_waits_again_and_is_gone() -> None:
    rows = LiveRows()
    a = live("a")
    rows.add(a)
    assert "a" in rows
    assert not rows.holding
    rows.start(a, Phase.PREFILL)
    assert list(rows.holding) == ["a"]
    rows.retract(a)
    assert not rows.holding
    assert a.row.phase is Phase.RETRACTED
    assert rows.roster.num_waiting == 1
    assert rows.forget("a") is a
    assert rows.forget("a") is None
    assert len(rows) == 0


def test_a_row_is_in_flight_until_its_last_result_is_processed() -> None:
    a = live("a")
    a.launched()
    a.launched()
    a.processed()
    assert a.row.in_flight
    a.processed()
    assert not a.row.in_flight


def test_sglang_sees_parked_and_half_filled_rows_and_their_tokens() -> None:
    rows = LiveRows()
    view, pending = HoldingView(rows), PendingPrefill(rows)
    assert view.is_empty()
    for rid, phase, computed in (("a", Phase.DECODE, 40), ("b", Phase.PREFILL, 15)):
        row = live(rid)
        rows.add(row)
        rows.start(row, phase)
        row.row.computed_tokens = computed
    rows.add(live("c"))
    assert [req.rid for req in view.reqs] == ["a", "b"]
    assert view.batch_size() == 2
    assert pending.seqlen - len(pending.prefix_indices) == 25


def test_the_class_of_a_row_is_fixed() -> None:
    assert live("a", RequestClass.ONLINE).is_online
    assert not live("b", RequestClass.FLEX).is_online


def test_an_id_is_live_once() -> None:
    rows = LiveRows()
    rows.add(live("a"))
    with pytest.raises(ValueError, match="already live"):
        rows.add(live("a"))
