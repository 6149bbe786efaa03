from __future__ import annotations

from typing import Any

import pytest

from api.embedding_request import MAX_INPUTS, check_embedding, inputs_of
from api.errors import InvalidRequest

GOOD: dict[str, Any] = {"model": "m", "input": "hi"}


@pytest.mark.parametrize(
    ("given", "single"),
    [
        ("hi", ["hi"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["x"] * MAX_INPUTS, ["x"] * MAX_INPUTS),
    ],
    ids=["text", "texts", "tokens", "token lists", "as many as allowed"],
)
def test_the_four_forms_of_an_input(given: Any, single: list[Any]) -> None:
    body = {**GOOD, "input": given}
    check_embedding(body)
    assert inputs_of(body) == single


@pytest.mark.parametrize(
    "more",
    [
        {"encoding_format": "base64", "dimensions": 8, "user": "u"},
        {"encoding_format": "float", "dimensions": None},
        {"service_tier": "flex", "stream": False, "something_new": None},
    ],
    ids=str,
)
def test_accepted(more: dict[str, Any]) -> None:
    check_embedding({**GOOD, **more})


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": {"text": "x"}}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 1]}, "input[1]"),
        ({"input": [1, "a"]}, "input[1]"),
        ({"input": [1, -1]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": [True]}, "input[0]"),
        ({"input": ["x"] * (MAX_INPUTS + 1)}, "input"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 1.5}, "dimensions"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"encoding_format": 1}, "encoding_format"),
        ({"stream": True}, "stream"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"lora_path": "x"}, "lora_path"),
        ({"embed_overrides": [[[1.0]]]}, "embed_overrides"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refused_by_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_embedding({**GOOD, **more})
    assert refused.value.param == param
