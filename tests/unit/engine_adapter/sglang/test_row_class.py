"""Class, deadline and batch out of what the gateway sends with a request."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine_adapter.scheduling.request import RequestClass
from engine_adapter.sglang.row_class import classify


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
