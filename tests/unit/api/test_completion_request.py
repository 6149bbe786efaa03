from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api.completion_request import check_completion, prompts_of
from api.embedding_request import check_embedding
from api.errors import InvalidRequest

GOOD: dict[str, Any] = {"model": "m", "prompt": "hi"}


@pytest.mark.parametrize(
    ("prompt", "single"),
    [
        ("hi", ["hi"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, single: list[Any]) -> None:
    body = {**GOOD, "prompt": prompt}
    check_completion(body)
    assert prompts_of(body) == single


@pytest.mark.parametrize(
    "more",
    [
        {"echo": True, "best_of": 1, "suffix": None, "logprobs": 5},
        {"n": 3, "best_of": 3},
        {"logprobs": 0},
        {"suffix": ""},
    ],
    ids=str,
)
def test_accepted(more: dict[str, Any]) -> None:
    check_completion({**GOOD, **more})


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": [[1], "a"]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "n"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"best_of": 21}, "best_of"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x", ""]}, "stop[1]"),
        ({"best_of": 2}, "best_of"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"echo": "yes"}, "echo"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refused_with_the_fields_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_completion({**GOOD, **more})
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("check", "field"), [(check_completion, "prompt"), (check_embedding, "input")]
)
@pytest.mark.parametrize(
    ("value", "at", "expected"),
    [
        ([1.0], "[0]", "an integer"),
        ([1, 1.5], "[1]", "an integer"),
        ([[1.0]], "[0][0]", "an integer"),
        ([1, "a"], "[1]", "an integer"),
        (["a", 1], "[1]", "a string"),
        ([{}], "[0]", "a string, a token id or an array of token ids"),
        ([True], "[0]", "a string, a token id or an array of token ids"),
        ([None], "[0]", "a string, a token id or an array of token ids"),
        ({}, "", "a string, an array of strings or of token ids"),
    ],
    ids=str,
)
def test_what_a_prompt_may_be(
    check: Callable[[Any], None], field: str, value: Any, at: str, expected: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check({"model": "m", field: value})
    assert refused.value.message == f"Invalid type for '{field}{at}': expected {expected}."
