"""Errors of rows, read and counted."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dashboard.row_errors import ErrorGroup, RowError, grouped, outlook
from store.models import Batch


def line(error: Any = None, *, status: int | None = None, body: Any = None) -> bytes:
    response = None if status is None else {"status_code": status, "body": body or {}}
    return orjson.dumps({"custom_id": "a", "response": response, "error": error})


def test_an_error_is_the_lines_or_the_answers() -> None:
    ours = RowError.of(line({"code": "engine_lost", "message": "It went away."}))
    assert ours == RowError(None, "engine_lost", "It went away.")
    assert ours.words == "engine_lost: It went away."
    theirs = RowError.of(line(status=400, body={"error": {"type": "bad_request", "code": None}}))
    assert theirs == RowError(400, "bad_request", "no message")
    assert theirs.words == "400 bad_request: no message"
    assert RowError.of(line(status=500)) == RowError(500, "", "no message")
    assert RowError.of(line(status=200, body={"choices": []})) is None


def test_the_same_errors_are_counted_together_the_most_frequent_first() -> None:
    lines = [line({"code": code, "message": f"{code} {n}"}) for n, code in enumerate("abbcb")]
    assert grouped([*lines, line(status=200)]) == [
        ErrorGroup("b", 3, "b 1"), ErrorGroup("a", 1, "a 0"), ErrorGroup("c", 1, "c 3"),
    ]  # fmt: skip


def test_a_retry_is_told_what_will_fail_again() -> None:
    lines = [
        line(status=400, body={"error": {"code": "context_length_exceeded", "message": "long"}}),
        line(status=503, body={"error": {"code": "engine_unavailable", "message": "away"}}),
        line({"code": "batch_cancelled", "message": "stopped"}),
        line({"code": "engine_lost", "message": "gone"}),
    ]
    found = outlook(Batch(num_failed=7, num_stopped=4), lines, limit=5)
    assert (found.num, found.num_not_run, found.counted) == (7, 4, None)
    assert {one.code: one.again for one in found.groups} == {
        "context_length_exceeded": True,
        "engine_unavailable": False,
        "engine_lost": False,
    }
    assert outlook(Batch(num_failed=7, num_stopped=4), lines, limit=4).counted == 4
