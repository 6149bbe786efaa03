from __future__ import annotations

import pytest

from api import errors
from api.errors import ApiError, Conflict, EngineUnavailable, error_body


def _tree(cls: type[ApiError]) -> list[type[ApiError]]:
    return [cls, *(below for child in cls.__subclasses__() for below in _tree(child))]


OURS = [cls for cls in _tree(ApiError) if cls.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
@pytest.mark.contract("T-11", "T-12")
def test_every_error_has_the_four_keys_and_a_string_code(cls: type[ApiError]) -> None:
    body = error_body(cls("what happened", param="x"))
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["code"] is None or isinstance(body["error"]["code"], str)
    assert 400 <= cls.status < 600


@pytest.mark.parametrize("cls", [cls for cls in OURS if cls.status in (429, 503)])
@pytest.mark.contract("T-20")
def test_what_may_be_repeated_says_when(cls: type[ApiError]) -> None:
    assert 0 < float(cls("busy").headers["retry-after"]) <= 120


def test_a_code_can_be_given_and_taken_away() -> None:
    assert EngineUnavailable("gone").code == "engine_unavailable"
    assert EngineUnavailable("gone", code=None).code is None
    assert EngineUnavailable("gone", code="other").code == "other"


def test_half_a_surrogate_pair_of_a_caller_can_be_answered() -> None:
    error = error_body(ApiError("No such file: a\ud800b", param="x\udc00"))["error"]
    assert (error["message"], error["param"]) == ("No such file: a?b", "x?")


def test_headers_of_one_error_do_not_reach_the_next() -> None:
    EngineUnavailable("gone").headers["retry-after"] = "99"
    assert EngineUnavailable("gone").headers["retry-after"] == "5"


def test_a_conflict_carries_both_states_and_is_not_repeated() -> None:
    conflict = Conflict("no", current="completed", expected=("in_progress",))
    assert (conflict.current, conflict.expected) == ("completed", ("in_progress",))
    assert conflict.headers["x-should-retry"] == "false"
