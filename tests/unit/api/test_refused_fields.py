"""Every name of a body is served, refused with what to use instead, or refused as unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding
from api.errors import InvalidRequest
from api.mapped_fields import mapped
from api.refused_fields import REFUSED_FIELDS, TAKEN_FIELDS
from api.responses.request import check_response

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "hi"}
INPUT: dict[str, Any] = {"model": "m", "input": "hi"}
Check = Callable[[Mapping[str, Any]], None]
ENDPOINTS: list[tuple[Check, dict[str, Any], Any]] = [
    (check_chat, CHAT, chat_create_params.CompletionCreateParamsStreaming),
    (check_completion, COMPLETION, completion_create_params.CompletionCreateParamsStreaming),
    (check_embedding, INPUT, embedding_create_params.EmbeddingCreateParams),
    (check_response, INPUT, response_create_params.ResponseCreateParamsStreaming),
]


def refused(check: Check, body: Mapping[str, Any]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        check(body)
    return error.value


@pytest.mark.parametrize(("check", "body", "params"), ENDPOINTS)
def test_the_official_client_sends_no_name_that_is_unknown(
    check: Check, body: dict[str, Any], params: Any
) -> None:
    unknown = []
    for name in params.__required_keys__ | params.__optional_keys__:
        try:
            sent = {name: "x", **body}
            check(mapped("/v1/chat/completions", sent) if check is check_chat else sent)
        except InvalidRequest as error:
            unknown += [name] if error.code == "unknown_parameter" else []
    assert unknown == []


@pytest.mark.parametrize(("check", "body", "params"), ENDPOINTS)
def test_what_is_not_served_is_refused_and_says_what_to_use(
    check: Check, body: dict[str, Any], params: Any
) -> None:
    for name, instead in REFUSED_FIELDS.items():
        error = refused(check, {**body, name: "x"})
        assert (error.param, error.code) == (name, "unsupported_parameter")
        assert instead in error.message
        check({**body, name: None})


@pytest.mark.parametrize(("check", "body", "params"), ENDPOINTS)
def test_what_changes_nothing_is_taken(check: Check, body: dict[str, Any], params: Any) -> None:
    check({**body, **dict.fromkeys(TAKEN_FIELDS, "x")})


@pytest.mark.parametrize(
    ("check", "body", "near"),
    [
        (check_chat, {**CHAT, "max_token": 5}, "max_tokens"),
        (check_chat, {**CHAT, "temprature": 0.5}, "temperature"),
        (check_chat, {**CHAT, "TEMPERATURE": 0.5}, "temperature"),
        (check_chat, {**CHAT, "input": "hi"}, "messages"),
        (check_chat, {**CHAT, "max_output_tokens": 5}, "max_completion_tokens"),
        (check_completion, {**COMPLETION, "max_completion_tokens": 5}, "max_tokens"),
        (check_completion, {**COMPLETION, "messages": []}, "prompt"),
        (check_completion, {**COMPLETION, "max_tokenz": 5}, "max_tokens"),
        (check_embedding, {**INPUT, "dimension": 5}, "dimensions"),
        (check_response, {**INPUT, "max_tokens": 5}, "max_output_tokens"),
        (check_response, {**INPUT, "response_format": {}}, "text.format"),
        (check_response, {**INPUT, "messages": []}, "input"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    check: Check, body: dict[str, Any], near: str
) -> None:
    name = list(body)[-1]
    error = refused(check, body)
    assert (error.status, error.param, error.code) == (400, name, "unknown_parameter")
    assert error.message == (
        f"Unrecognized request argument supplied: {name}. Did you mean '{near}'?"
    )
    check({**body, name: None})


def test_a_name_like_no_other_is_refused_without_a_guess_and_not_repeated_whole() -> None:
    error = refused(check_chat, {**CHAT, "z" * 5_000: 1})
    assert error.message == f"Unrecognized request argument supplied: {'z' * 64}."


def test_every_field_stands_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "engine-fields.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    plain = {name: hint.replace("`", "'").replace("\\|", "|") for name, hint in rows.items()}
    told = {**REFUSED_FIELDS, **TAKEN_FIELDS}
    assert {name: plain.get(name) for name in told} == told
