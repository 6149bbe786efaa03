"""Numbers that become an index or a size in an engine."""

from __future__ import annotations

from typing import Any

import pytest

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding
from api.errors import ContextLengthExceeded, InvalidRequest
from api.numbers import (
    ANY_MODEL,
    UNKNOWN,
    ModelSizes,
    check_lengths,
    check_numbers,
    largest_sizes,
    outside,
)

SIZES = ModelSizes(vocab_size=100, context_tokens=50, hidden_size=16)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [100]}, "prompt[0]"),
        ({"prompt": [1, 99, 4096]}, "prompt[2]"),
        ({"prompt": [[1], [2, 100]]}, "prompt[1][1]"),
        ({"input": [5, 100]}, "input[1]"),
        ({"input": [[100]]}, "input[0][0]"),
        ({"stop_token_ids": [7, 101]}, "stop_token_ids[1]"),
        ({"logit_bias": {"3": 1, "100": 1}}, "logit_bias"),
        ({"logprobs": 101}, "logprobs"),
        ({"top_logprobs": 101}, "top_logprobs"),
        ({"dimensions": 17}, "dimensions"),
    ],
)
def test_a_number_that_the_model_does_not_have(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_numbers(body, SIZES)
    assert (refused.value.param, refused.value.code) == (param, "invalid_value")
    check_numbers(body, UNKNOWN)


def test_the_last_number_that_it_has() -> None:
    check_numbers(
        {
            "prompt": [0, 99],
            "stop_token_ids": [99],
            "logit_bias": {"99": -100, "0": 1},
            "logprobs": 5,
            "dimensions": 16,
        },
        SIZES,
    )
    check_numbers({"prompt": "text", "input": ["a", "b"], "logprobs": True}, SIZES)


def test_more_tokens_than_the_context_has() -> None:
    check_numbers({"prompt": [1] * 49}, SIZES)
    with pytest.raises(ContextLengthExceeded, match="maximum context length is 50") as refused:
        check_numbers({"prompt": [[1], [1] * 50]}, SIZES)
    assert refused.value.param == "prompt"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
@pytest.mark.parametrize(
    ("prompt", "most"),
    [("words", 49), ([1, 2, 3], 47), ([[1], [1] * 9], 41), (["a", "b"], 49)],
)
def test_an_answer_that_no_prompt_leaves_room_for(name: str, prompt: Any, most: int) -> None:
    check_lengths({"prompt": prompt, name: most}, SIZES)
    check_lengths({"prompt": prompt, name: 1 << 30}, UNKNOWN)
    with pytest.raises(ContextLengthExceeded, match=f"can be at most {most}") as refused:
        check_lengths({"prompt": prompt, name: most + 1, "stop_token_ids": [1] * 60}, SIZES)
    assert refused.value.param == name


def test_nothing_is_known_yet() -> None:
    """Where no engine has said anything, no model is larger than this."""
    most = ANY_MODEL.vocab_size
    for body in ({"prompt": [most]}, {"stop_token_ids": [most]}, {"logit_bias": {str(most): 1}}):
        with pytest.raises(InvalidRequest):
            check_numbers(body, UNKNOWN)


def test_the_largest_engine_of_a_model_counts() -> None:
    told = {"m": [(0, 2048, 0), (100, 4096, 0)], "n": [(7, 8, 9)]}
    assert largest_sizes(told) == {"m": ModelSizes(100, 4096, 0), "n": ModelSizes(7, 8, 9)}


def test_the_first_that_is_outside() -> None:
    assert outside([], 5) is None
    assert outside([0, 4], 5) is None
    assert outside([0, 5, 6], 5) == 1
    assert outside([0, -1], 5) == 1


CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "hi"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"top_k": 0}, "top_k"),
        ({"top_k": -2}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty"),
        ({"repetition_penalty": 0.009}, "repetition_penalty"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"stop_token_ids": [1 << 20]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"max_tokens": 1 << 31}, "max_tokens"),
    ],
)
def test_what_no_engine_takes(changes: dict[str, Any], param: str) -> None:
    for check, body in ((check_chat, CHAT), (check_completion, COMPLETION)):
        with pytest.raises(InvalidRequest) as refused:
            check(body | changes)
        assert refused.value.param == param


def test_an_answer_left_open_has_a_longest_length_too() -> None:
    check_chat(CHAT | {"min_tokens": 17})
    check_completion(COMPLETION | {"min_tokens": 16})
    with pytest.raises(InvalidRequest, match="longest length, 16"):
        check_completion(COMPLETION | {"min_tokens": 17})
    with pytest.raises(InvalidRequest):
        check_chat(CHAT | {"min_tokens": 9, "max_completion_tokens": 8, "max_tokens": 10})


def test_a_number_too_large_is_called_so() -> None:
    with pytest.raises(InvalidRequest, match="must be at most 2147483647"):
        check_chat(CHAT | {"max_tokens": 1 << 31})
    with pytest.raises(InvalidRequest, match=r"input\[0\]"):
        check_embedding({"model": "m", "input": [1 << 20]})
