"""One line, judged on its own (rows B-13 to B-19)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.intake.body import MAX_MESSAGES, PREFIX_CHARS
from batch.intake.line import MAX_CUSTOM_ID_CHARS, ParsedLine, parse_line, read_body
from batch.intake.line_error import MAX_MESSAGE_CHARS

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GOOD: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": CHAT,
    "body": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
}


def judge(line: object, endpoint: str = CHAT) -> ParsedLine:
    raw = line if isinstance(line, bytes) else orjson.dumps(line)
    return parse_line(raw, line_no=7, offset=100, endpoint=endpoint)


def with_body(**changes: object) -> dict[str, Any]:
    return {**GOOD, "body": {**GOOD["body"], **changes}}


def test_a_line_deeper_than_an_engine_could_be_sent() -> None:
    deep = orjson.loads(b'{"role": "user", "content": "hi", "x": ' + b"[" * 70 + b"]" * 70 + b"}")
    (fault,) = judge(with_body(messages=[deep])).faults
    assert (fault.code, fault.message) == (
        "json_too_complex",
        "This line may have 64 levels at most.",
    )


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


def test_a_good_line() -> None:
    raw = orjson.dumps(GOOD)
    assert judge(raw) == ParsedLine(7, 100, len(raw), "a", "m", 1, 5, "user\nhi\n", ())
    assert read_body(raw) == GOOD["body"]


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"nonsense", "invalid_json_line", None),
        (b'{"custom_id": NaN}', "invalid_json_line", None),
        (b'{"custom_id": "\\ud800"}', "invalid_json_line", None),
        (b"[" * 5000, "json_too_complex", None),
        (b'{"custom_id": "\xff"}', "invalid_utf8", None),
        ([], "invalid_json_line", None),
        ("text", "invalid_json_line", None),
        (without("custom_id"), "missing_required_parameter", "custom_id"),
        ({**GOOD, "custom_id": None}, "missing_required_parameter", "custom_id"),
        ({**GOOD, "custom_id": 7}, "invalid_type", "custom_id"),
        ({**GOOD, "custom_id": ""}, "invalid_custom_id", "custom_id"),
        ({**GOOD, "custom_id": "a\0b"}, "invalid_custom_id", "custom_id"),
        (
            {**GOOD, "custom_id": "x" * (MAX_CUSTOM_ID_CHARS + 1)},
            "invalid_custom_id",
            "custom_id",
        ),
        (without("method"), "missing_required_parameter", "method"),
        ({**GOOD, "method": "GET"}, "invalid_method", "method"),
        ({**GOOD, "method": "post"}, "invalid_method", "method"),
        (without("url"), "missing_required_parameter", "url"),
        ({**GOOD, "url": COMPLETIONS}, "invalid_url", "url"),
        ({**GOOD, "url": "/chat/completions"}, "invalid_url", "url"),
        (without("body"), "missing_required_parameter", "body"),
        ({**GOOD, "body": None}, "invalid_type", "body"),
        ({**GOOD, "body": "{}"}, "invalid_type", "body"),
        (with_body(model=None), "missing_required_parameter", "body.model"),
        (with_body(model=3), "invalid_type", "body.model"),
        (with_body(model=""), "invalid_value", "body.model"),
        (with_body(stream=True), "streaming_unsupported", "body.stream"),
        (with_body(n=129), "too_many_choices", "body.n"),
        (with_body(n="1"), "invalid_type", "body.n"),
        (with_body(n=True), "invalid_type", "body.n"),
        (with_body(max_tokens=0), "invalid_value", "body.max_tokens"),
        (with_body(max_tokens=1.5), "invalid_type", "body.max_tokens"),
        (with_body(max_completion_tokens=-1), "invalid_value", "body.max_completion_tokens"),
        (with_body(temperature=2.1), "invalid_value", "body.temperature"),
        (with_body(temperature="hot"), "invalid_type", "body.temperature"),
        (with_body(top_p=-0.1), "invalid_value", "body.top_p"),
        (with_body(presence_penalty=3), "invalid_value", "body.presence_penalty"),
        (with_body(messages=None), "missing_required_parameter", "body.messages"),
        (with_body(messages={}), "invalid_type", "body.messages"),
        (with_body(messages=[]), "invalid_value", "body.messages"),
        (
            with_body(messages=GOOD["body"]["messages"] * (MAX_MESSAGES + 1)),
            "invalid_value",
            "body.messages",
        ),
        (with_body(messages=["hi"]), "invalid_type", "body.messages[0]"),
        (
            with_body(messages=[{"content": "hi"}]),
            "missing_required_parameter",
            "body.messages[0].role",
        ),
        (
            with_body(messages=[{"role": "robot", "content": "hi"}]),
            "invalid_value",
            "body.messages[0].role",
        ),
        (
            with_body(messages=[{"role": ["user"], "content": "hi"}]),
            "invalid_value",
            "body.messages[0].role",
        ),
        (
            with_body(messages=[{"role": "user"}]),
            "missing_required_parameter",
            "body.messages[0].content",
        ),
        (
            with_body(messages=[{"role": "user", "content": 3}]),
            "invalid_type",
            "body.messages[0].content",
        ),
        # What only the rules of the online endpoint know.
        (with_body(seed="x"), "invalid_type", "body.seed"),
        (with_body(top_logprobs=3), "invalid_value", "body.top_logprobs"),
        (with_body(model="m" * 300), "invalid_value", "body.model"),
        (with_body(stream_options={}), "invalid_value", "body.stream_options"),
        (
            with_body(response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
            "invalid_type",
            "body.response_format.json_schema.schema",
        ),
    ],
)
@pytest.mark.contract("B-13", "B-14", "B-15", "B-16", "B-19")
def test_a_bad_line_has_this_one_fault(line: object, code: str, param: str | None) -> None:
    parsed = judge(line)
    assert [(fault.code, fault.param, fault.line) for fault in parsed.faults] == [(code, param, 7)]


@pytest.mark.parametrize(
    "line",
    [
        with_body(stream=False),
        with_body(stream=None),
        with_body(n=1),
        with_body(temperature=0),
        with_body(temperature=2),
        with_body(max_tokens=1, response_format={"type": "json_object"}),
        with_body(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
        with_body(
            messages=[
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": []},
            ]
        ),
        {**GOOD, "custom_id": "x" * MAX_CUSTOM_ID_CHARS},
        {**GOOD, "custom_id": "名前-🙂"},
        {**GOOD, "unknown": 1},
    ],
)
def test_what_is_allowed(line: dict[str, Any]) -> None:
    assert judge(line).faults == ()


@pytest.mark.parametrize("name", ["temperature", "max_tokens", "model", "messages", "tools"])
def test_what_was_meant_for_the_model_is_not_taken_for_a_note(name: str) -> None:
    (fault,) = judge({**GOOD, name: 1}).faults
    assert (fault.code, fault.param) == ("unknown_parameter", name)
    assert fault.message == f"'{name}' is read inside 'body' alone."
    assert judge({**GOOD, name: None}).faults == ()


def test_every_fault_of_a_line_is_reported() -> None:
    parsed = judge(
        {"custom_id": 1, "method": "GET", "url": "x", "body": {"stream": True, "n": 999}}
    )
    assert [fault.param for fault in parsed.faults] == [
        "custom_id",
        "method",
        "url",
        "body.model",
        "body.stream",
        "body.n",
        "body.messages",
    ]


def test_names_from_the_line_are_cut_and_storable() -> None:
    for name in ("a\0b", "x" * 100_000):
        [fault] = judge(with_body(metadata={name: 3})).faults
        assert fault.code in ("invalid_type", "invalid_value")
        assert "\0" not in f"{fault.param}{fault.message}"
        assert len(fault.message) <= MAX_MESSAGE_CHARS
        assert len(fault.param or "") <= MAX_MESSAGE_CHARS


@pytest.mark.contract("E-14")
@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        (None, "missing_required_parameter"),
        (3, "invalid_type"),
        ("", "invalid_value"),
        ([], "invalid_value"),
        ("Once", None),
        (["Once"], None),
        ([1, 2, 3], None),
        ([[1, 2, 3]], None),
        (["Once", "Twice"], None),
        ([[1], [2]], None),
        ([""], "invalid_value"),
        ([{}], "invalid_type"),
    ],
)
def test_prompts_of_completions(prompt: object, code: str | None) -> None:
    line = {**GOOD, "url": COMPLETIONS, "body": {"model": "m", "prompt": prompt}}
    codes = [fault.code for fault in judge(line, COMPLETIONS).faults]
    assert codes == ([] if code is None else [code])


def test_the_prefix_is_bounded_and_starts_with_the_first_message() -> None:
    messages = [{"role": "system", "content": "s" * 3000}, {"role": "user", "content": "u" * 9000}]
    prefix = judge(with_body(messages=messages)).prefix
    assert len(prefix) == PREFIX_CHARS
    assert prefix.startswith("system\n" + "s" * 3000 + "\nuser\nu")


@given(st.binary(max_size=300))
def test_no_bytes_can_break_it(raw: bytes) -> None:
    assert judge(raw).faults


_scalar = st.none() | st.booleans() | st.integers(-5, 5) | st.text("a\0é", max_size=3)
_json = _scalar | st.lists(_scalar, max_size=2) | st.dictionaries(st.just("a"), _scalar)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "custom_id": _json,
            "method": st.just("POST") | _json,
            "url": st.just(CHAT) | _json,
            "body": _json
            | st.fixed_dictionaries(
                {},
                optional={
                    "model": _json,
                    "stream": _json,
                    "n": _json,
                    "temperature": _json,
                    "messages": _json
                    | st.lists(
                        st.fixed_dictionaries({}, optional={"role": _json, "content": _json}),
                        max_size=2,
                    ),
                },
            ),
        },
    )
)
@pytest.mark.contract("Z-12")
def test_no_json_can_break_it_and_faults_hold_no_prompt(line: dict[str, Any]) -> None:
    parsed = judge(line)
    assert all(fault.line == 7 and fault.message for fault in parsed.faults)
    if not parsed.faults:
        assert parsed.custom_id
        assert parsed.model
