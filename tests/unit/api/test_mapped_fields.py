"""Other servers' words: what they become, and what is refused by the name that was sent."""

from __future__ import annotations

from typing import Any

import pytest

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.errors import InvalidRequest
from api.mapped_fields import MAPPED_FIELDS, mapped
from api.refused_fields import REFUSED_FIELDS, TAKEN_FIELDS
from api.responses.request import check_response

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"model": "m", "prompt": "hi"},
    RESPONSES: {"model": "m", "input": "hi"},
}
CHECKS = {CHAT: check_chat, COMPLETIONS: check_completion, RESPONSES: check_response}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"name": "answer", "schema": SCHEMA}
ON = {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}}
OFF = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"guided_regex": "a|b"}, {"regex": "a|b"}),
    ({"guided_grammar": 'root ::= "a"'}, {"ebnf": 'root ::= "a"'}),
    ({"guided_choice": ["a", 'b"\\']}, {"ebnf": 'root ::= "a" | "b\\"\\\\"'}),
    ({"structured_outputs": {"regex": "a"}}, {"regex": "a"}),
    ({"structured_outputs": {"grammar": "root ::= x"}}, {"ebnf": "root ::= x"}),
    ({"structured_outputs": {"choice": ["é"], "json": None}}, {"ebnf": 'root ::= "é"'}),
    ({"structured_outputs": {"disable_fallback": False}}, {}),
    ({"guided_json": None, "guided_choice": []}, {}),
]
SCHEMAS: list[dict[str, Any]] = [
    {"guided_json": SCHEMA},
    {"guided_json": '{"type": "object", "properties": {"a": {"type": "integer"}}}'},
    {"structured_outputs": {"json": SCHEMA}},
]
SWITCHES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"enable_thinking": False}, OFF),
    ({"thinking": {"type": "enabled"}}, ON),
    ({"thinking": {"type": "disabled"}, "enable_thinking": False}, OFF),
    ({"enable_thinking": True, "chat_template_kwargs": {"thinking": True}}, ON),
]
REASONING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ({"reasoning": {"effort": "max", "summary": None}}, {"reasoning_effort": "max"}),
    ({"reasoning": {"effort": "low"}, "reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ({"reasoning": {"enabled": False}}, OFF),
    ({"reasoning": {}}, {}),
]


def becomes(path: str, given: dict[str, Any], made: dict[str, Any]) -> None:
    sent = {**BODIES[path], **given}
    body = mapped(path, sent)
    assert body == {**BODIES[path], **made}
    assert sent == {**BODIES[path], **given}, "what was sent is left"
    CHECKS[path](body)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("given", "made"), FORMS)
def test_forms_of_the_answer(path: str, given: dict[str, Any], made: dict[str, Any]) -> None:
    becomes(path, given, made)


@pytest.mark.parametrize("given", SCHEMAS)
def test_schemas(given: dict[str, Any]) -> None:
    form = {"response_format": {"type": "json_schema", "json_schema": NAMED}}
    becomes(CHAT, given, form)
    becomes(COMPLETIONS, given, form)
    becomes(RESPONSES, given, {"text": {"format": {"type": "json_schema", **NAMED}}})


def test_any_object() -> None:
    given = {"structured_outputs": {"json_object": True}}
    becomes(CHAT, given, {"response_format": {"type": "json_object"}})
    becomes(RESPONSES, given, {"text": {"format": {"type": "json_object"}}})


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize(("given", "made"), SWITCHES)
def test_thinking(path: str, given: dict[str, Any], made: dict[str, Any]) -> None:
    becomes(path, given, made)


@pytest.mark.parametrize(("given", "made"), REASONING)
def test_reasoning_in_chat(given: dict[str, Any], made: dict[str, Any]) -> None:
    becomes(CHAT, given, made)


def test_reasoning_of_a_response_is_its_own() -> None:
    given = {"reasoning": {"effort": "low", "summary": "auto"}}
    becomes(RESPONSES, given, given)


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": 3}, "guided_json"),
        ({"guided_regex": "a" * 2000}, "guided_regex"),
        ({"guided_choice": ["a", 1]}, "guided_choice[1]"),
        ({"guided_choice": [""]}, "guided_choice[0]"),
        ({"guided_choice": ["a" * 20_000]}, "guided_choice"),
        ({"guided_regex": "a", "regex": "b"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": "x"}, "structured_outputs"),
        ({"enable_thinking": "yes"}, "enable_thinking"),
        ({"enable_thinking": True, "thinking": {"type": "disabled"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        ({"thinking": True}, "thinking"),
    ],
)
def test_refused_by_the_name_that_was_sent(path: str, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        CHECKS[path](mapped(path, {**BODIES[path], **given}))
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": 9}}, "reasoning.max_tokens"),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "reasoning.effort"),
        ({"guided_json": SCHEMA, "guided_regex": "a"}, "regex"),
        ({"guided_json": SCHEMA, "response_format": {"type": "json_object"}}, "guided_json"),
    ],
)
def test_refused_in_chat(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_chat(mapped(CHAT, {**BODIES[CHAT], **given}))
    assert refused.value.param == param


def test_no_field_is_both_mapped_and_refused() -> None:
    assert not MAPPED_FIELDS & (REFUSED_FIELDS.keys() | TAKEN_FIELDS.keys())


def test_a_body_without_them_is_itself() -> None:
    assert mapped(CHAT, BODIES[CHAT]) is BODIES[CHAT]
