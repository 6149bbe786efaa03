"""Class, deadline and batch of a request; the table of live ones, as SGLang sees it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.sglang.live_requests import (
    HoldingView,
    LaunchedStep,
    LiveRequest,
    LiveRequests,
    PendingPrefill,
    classify,
)


@pytest.mark.parametrize("priority", [None, 0, 7])
def test_no_negative_priority_is_online(priority: int | None) -> None:
    assert classify(priority, {"coserve": {"class": "offline"}}).request_class is (
        RequestClass.ONLINE
    )


def test_offline_with_deadline_and_batch() -> None:
    found = classify(-10, {"coserve": {"deadline_in_s": 3600, "batch": "batch_1"}})
    assert found.request_class is RequestClass.OFFLINE
    assert found.deadline_in_s == 3600.0
    assert found.batch_id == "batch_1"


def test_what_a_later_gateway_says_beside_it_is_passed_over() -> None:
    detail = {"class": "offline", "deadline_in_s": 60, "batch": "batch_1", "weight": [2]}
    found = classify(-2, {"coserve": detail, "other": {"class": "flex"}})
    assert found == classify(-2, {"coserve": {"deadline_in_s": 60, "batch": "batch_1"}})
    assert found.request_class is RequestClass.OFFLINE


@pytest.mark.parametrize(
    ("priority", "params"), [(-1, None), (-10, {"coserve": {"class": "flex"}})]
)
def test_flex(priority: int, params: Any) -> None:
    assert classify(priority, params).request_class is RequestClass.FLEX


@pytest.mark.parametrize(
    "params",
    [None, "x", {}, {"coserve": 3}, {"coserve": {"deadline_in_s": "soon"}},
     {"coserve": {"deadline_in_s": math.nan}}],
)  # fmt: skip
def test_malformed_detail_never_makes_a_request_online(params: Any) -> None:
    found = classify(-10, params)
    assert found.request_class is RequestClass.OFFLINE
    assert found.deadline_in_s == math.inf


# --- The table of live requests.


def live(
    rid: str, request_class: RequestClass = RequestClass.OFFLINE, prompt: int = 40
) -> LiveRequest:
    request = Request(rid, request_class, prompt_tokens=prompt, fill_tokens=prompt)
    return LiveRequest(SimpleNamespace(rid=rid), request)


def test_a_request_waits_holds_a_slot_waits_again_and_is_gone() -> None:
    requests = LiveRequests()
    a = live("a")
    requests.add(a)
    assert "a" in requests
    assert not requests.holding
    requests.start(a, Phase.PREFILL)
    assert list(requests.holding) == ["a"]
    requests.retract(a)
    assert not requests.holding
    assert a.request.phase is Phase.RETRACTED
    assert requests.roster.num_waiting == 1
    assert requests.forget("a") is a
    assert requests.forget("a") is None
    assert len(requests) == 0


def test_a_request_is_in_flight_until_its_last_result_is_processed() -> None:
    a = live("a")
    steps = [LaunchedStep(StepPlan(i), None, [], [a], [1]) for i in (1, 2)]
    for step in steps:
        step.launched()
    assert steps[0].processed() == [a]
    assert a.request.in_flight
    assert steps[1].processed() == [a]
    assert not a.request.in_flight


def test_a_request_that_was_cut_out_is_processed_when_it_is_undone() -> None:
    kept, cut = live("kept"), live("cut")
    step = LaunchedStep(StepPlan(1), None, [], [kept, cut], [1, 1])
    step.launched()
    cut.processed()
    step.dropped.add(1)
    assert step.processed() == [kept]
    assert not kept.request.in_flight
    assert not cut.request.in_flight
    assert (kept.pending, cut.pending) == (0, 0)


def test_sglang_sees_parked_and_half_filled_requests_and_their_tokens() -> None:
    requests = LiveRequests()
    view, pending = HoldingView(requests), PendingPrefill(requests)
    assert view.is_empty()
    for rid, phase, computed in (("a", Phase.DECODE, 40), ("b", Phase.PREFILL, 15)):
        request = live(rid)
        requests.add(request)
        requests.start(request, phase)
        request.request.computed_tokens = computed
    requests.add(live("c"))
    assert [req.rid for req in view.reqs] == ["a", "b"]
    assert view.batch_size() == 2
    assert pending.seqlen - len(pending.prefix_indices) == 25


def test_the_class_of_a_request_is_fixed() -> None:
    assert live("a", RequestClass.ONLINE).is_online
    assert not live("b", RequestClass.FLEX).is_online


def test_an_id_is_live_once() -> None:
    requests = LiveRequests()
    requests.add(live("a"))
    with pytest.raises(ValueError, match="already live"):
        requests.add(live("a"))
