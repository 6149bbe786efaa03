from __future__ import annotations

from typing import Any

import pytest

from api.engine_errors import (
    FAILED_ALONE,
    from_engine,
    from_stream_error,
    is_retryable,
    length_of,
    schema_param,
    share_that_fits,
    tool_params,
)
from api.errors import error_body


def flat(message: str, code: int = 400) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "code": code}


@pytest.mark.contract("T-25")
def test_a_long_prompt_names_limit_and_size() -> None:
    message = "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
    error = from_engine(400, flat(message))
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert "8192" in error.message
    assert "9000" in error.message


def test_vllms_words_of_a_long_prompt() -> None:
    """As vLLM 0.32 says them: the limit first, and of a very long prompt only its characters."""
    head = "This model's maximum context length is 2048 tokens. However, your prompt contains "
    error = from_engine(
        400,
        {"error": {"message": f"{head}at least 2049 input tokens, which exceeds this limit even "
                   "without any output tokens. Please reduce the length of the input prompt.",
                   "type": "BadRequestError", "param": "input_tokens", "code": 400}},
    )  # fmt: skip
    assert error.code == "context_length_exceeded"
    assert "is 2048 tokens" in error.message
    assert "resulted in 2049 tokens" in error.message
    assert 0.7 < share_that_fits(error.message) < 0.8
    error = from_engine(
        400,
        {"error": {"message": f"{head}15000 characters (more than 10240 characters, which is the "
                   "upper bound for 2048 input tokens). Please reduce the length of the input "
                   "prompt.", "code": 400}},
    )  # fmt: skip
    assert error.code == "context_length_exceeded"
    assert "context of 2048 tokens" in error.message
    assert share_that_fits(error.message) == 0.5


def test_prompt_and_answer_together_may_be_too_long() -> None:
    message = (
        "Requested token count exceeds the model's maximum context length of 2048 tokens. You "
        "requested a total of 2100 tokens: 100 tokens from the input messages and 2000 tokens for "
        "the completion. Please reduce the number of tokens."
    )
    error = from_engine(400, flat(message), prompt_param="prompt")
    assert (error.code, error.param) == ("context_length_exceeded", "max_tokens")
    for number in ("2048", "2100", "100", "2000"):
        assert number in error.message
    assert "'max_tokens' can be at most 1948" in error.message
    length = length_of({"max_completion_tokens": 9000, "max_tokens": 5})
    held = from_engine(400, flat(message), length=length)  # to the context, before it was sent
    assert held.param == "max_completion_tokens"
    assert "9100 tokens (100 in the prompt, 9000 in the completion)" in held.message
    assert "'max_completion_tokens' can be at most 1948" in held.message


def test_an_answer_longer_than_the_context_names_its_field() -> None:
    message = "max_completion_tokens is too large: 9000.This model supports at most 2048 completion"
    error = from_engine(400, flat(message))
    assert error.param == "max_completion_tokens"
    assert "2048" in error.message


@pytest.mark.parametrize(
    "body",
    [
        flat("1 validation error: [{'type': 'x', 'loc': ('body', 'n'), 'input': 'my secret'}]"),
        flat('Traceback (most recent call last): File "/opt/x/y.py" my secret'),
        {"detail": "could not open /home/me/my secret"},
        "my secret\nsecond line",
    ],
)
@pytest.mark.contract("Z-12")
def test_nothing_of_the_engines_inside_gets_out(body: Any) -> None:
    error = from_engine(400, body)
    assert error.status == 400
    assert "secret" not in error.message
    assert "/" not in error.message


def test_a_field_in_a_validation_error_becomes_the_param() -> None:
    message = "[{'type': 'int_parsing', 'loc': ('body', 'logprobs'), 'input': 'x'}]"
    assert from_engine(400, flat(message)).param == "logprobs"


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


TWO: dict[str, Any] = {"tools": [function("get-time"), function("f")]}
OBJECT = {"response_format": {"type": "json_object"}}
FIRST = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("body", "named", "param"),
    [
        ({**TWO, **OBJECT}, "f", "tools[1].function.parameters"),
        ({**TWO, **OBJECT}, "get-time", "tools[0].function.parameters"),
        ({**TWO, **OBJECT}, None, "response_format"),
        ({**TWO, "regex": "a"}, None, "regex"),
        ({**TWO, **OBJECT, "tool_choice": "required"}, None, "tools"),
        ({**TWO, **OBJECT, "tool_choice": FIRST}, None, "tools[1].function.parameters"),
        ({"tools": [function("f")]}, None, "tools[0].function.parameters"),
        ({**TWO, "functions": [{}, {}]}, "f", "functions[1].parameters"),
        ({**TWO, "tool_choice": "none"}, None, "response_format"),
        (OBJECT, "f", "response_format"),
    ],
)
def test_whose_schema_cannot_be_compiled(
    body: dict[str, Any], named: str | None, param: str
) -> None:
    where = "" if named is None else f"function '{named}': "
    said = f"Failed to compile structural_tag grammar: {where}it is too large"
    error = from_engine(
        400, flat(said), schema_param=schema_param(body), tool_params=tool_params(body)
    )
    assert error.param == param
    assert error.message == f"The engine cannot compile the schema in '{param}': it is too large."


@pytest.mark.parametrize("param", ["response_format", "tools"])
def test_a_schema_that_cannot_be_compiled_is_named(param: str) -> None:
    inside = "[12:00:01] /project/cpp/json_schema_converter.cc:3: Cannot find my secret in #/nope"
    message = f"Failed to compile json_schema grammar: {inside}"
    error = from_engine(400, flat(message), schema_param=param)
    assert (error.status, error.param, error.code) == (400, param, "invalid_value")
    assert error.message == f"The engine cannot compile the schema in '{param}'."
    ours = "Failed to compile json_schema grammar: the schema has more than 65536 characters"
    assert from_engine(400, flat(ours)).message.endswith(
        "'response_format': the schema has more than 65536 characters."
    )


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ("top_p must be in (0, 1], got 0.0.", "top_p"),
        ("min_new_tokens must be in [0, max_new_tokens(3)], got 9.", "min_tokens"),
        ("logit_bias must has keys in [0, 49151], got 50000.", "logit_bias"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "messages"),
        ("System role not supported", "messages"),
    ],
)
def test_what_an_engine_says_of_a_field_is_said_in_our_words(said: str, param: str) -> None:
    error = from_engine(400, flat(said))
    assert (error.param, error.code) == (param, "invalid_value")
    assert said not in error.message


def test_what_is_not_known_is_about_the_prompt() -> None:
    for param in ("messages", "prompt", "input"):
        error = from_engine(400, flat("Only user and assistant roles!"), prompt_param=param)
        assert (error.param, error.code) == (param, "invalid_value")
        assert error.message == f"The engine cannot process this '{param}'."


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        (404, 404, "model_not_found"),
        (413, 413, "payload_too_large"),
        (429, 503, "server_is_overloaded"),
        (503, 503, "server_is_overloaded"),
        (502, 503, "engine_unavailable"),
        (500, 500, "engine_error"),
        (501, 500, "engine_error"),
    ],
)
def test_other_statuses(status: int, expected: int, code: str) -> None:
    error = from_engine(status, flat("boom", status))
    assert (error.status, error.code) == (expected, code)
    assert error_body(error)["error"]["code"] == code


def test_what_the_engine_may_do_better_next_time() -> None:
    assert not is_retryable(from_engine(400, flat("no")))
    assert not is_retryable(from_engine(404, flat("no")))
    assert is_retryable(from_engine(500, flat("no")))
    assert is_retryable(from_engine(503, flat("no")))


@pytest.mark.parametrize("event", [{"code": 400, "message": "bad"}, {"message": "?"}, None, [], 3])
def test_error_events_of_any_shape(event: Any) -> None:
    error = from_stream_error(event)
    known = isinstance(event, dict) and event.get("code")
    assert error.status == (400 if known else 500)


def test_a_grammar_that_nothing_satisfies_is_the_requests_fault() -> None:
    for said, words in (
        ("Failed to compile the grammar: no text that ends can satisfy it", "no text that ends"),
        ("Grammar preprocessing timed out: req.grammar_key=('ebnf', 'secret')", "too long"),
    ):
        for error in (
            from_engine(400, {"message": said}, schema_param="ebnf"),
            from_stream_error({"code": 400, "message": said}, schema_param="ebnf"),
        ):
            assert (error.status, error.param, error.code) == (400, "ebnf", "invalid_value")
            assert words in error.message
            assert "secret" not in error.message


def test_a_request_that_the_engine_failed_on_alone_is_not_sent_again() -> None:
    for error in (from_engine(400, flat(FAILED_ALONE)), from_stream_error(flat(FAILED_ALONE))):
        assert (error.status, error.code) == (422, "engine_request_failed")
        assert error.headers["x-should-retry"] == "false"
        assert not is_retryable(error)
