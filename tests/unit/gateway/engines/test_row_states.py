from __future__ import annotations

from typing import Any

import pytest

from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import Member
from gateway.engines.row_states import Reported, at_engines
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine


def member(by_batch: Any, *, up: bool = True) -> Member:
    facts = EngineFacts("m", 2048, raw={"coserve": {"by_batch": by_batch}})
    return Member(FakeEngineClient(FakeEngine()), facts=facts, up=up)


def test_engines_are_added_up() -> None:
    members = [
        member({"batch_1": [3, 2, 1], "batch_2": [9, 9, 9]}),
        member({"batch_1": [1, 0, 4]}),
        member({"batch_1": [50, 50, 50]}, up=False),
    ]
    assert at_engines(members, "batch_1") == Reported(4, 2, 5)
    assert at_engines(members, "batch_3") == Reported()


@pytest.mark.parametrize("said", [None, 7, [1, 2]])
def test_an_engine_that_says_nothing_of_it_is_not_counted(said: Any) -> None:
    assert at_engines([member(said)], "batch_1") is None
    assert at_engines([], "batch_1") is None
    assert at_engines([member(said), member({"batch_1": [1, 0, 0]})], "batch_1") == Reported(1)


def test_what_is_no_count_is_left_out() -> None:
    assert at_engines([member({"batch_1": [1, 2]})], "batch_1") == Reported()


@pytest.mark.parametrize(
    ("num_rows", "fitted"),
    [(6, (3, 2, 1)), (10, (3, 2, 5)), (4, (3, 1, 0)), (2, (2, 0, 0)), (0, (0, 0, 0))],
)
def test_the_database_says_how_many_there_are(num_rows: int, fitted: tuple[int, ...]) -> None:
    found = Reported(3, 2, 1).fitted(num_rows)
    assert (found.decoding, found.parked, found.queued) == fitted
    assert found.rows == num_rows
