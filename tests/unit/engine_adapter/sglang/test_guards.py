"""Sizes at which a grammar is not compiled; tokens that hold part of a character."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from api.schemas import limits
from api.schemas.held import held
from api.schemas.limits import pattern_refusal, schema_excess, schema_refusal
from api.tool_prompt import with_tools
from engine_adapter.sglang import guards, logprobs
from engine_adapter.sglang.guards import (
    PartialText,
    raw_bytes,
    with_bytes,
)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def properties(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {} for i in range(count)}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"city": {"type": "string", "maxLength": 1000}}},
        properties(limits.MAX_PROPERTIES),
        nested(60),
        {"enum": list(range(limits.MAX_ENUM_VALUES))},
        {"enum": [f"https://e.com/{i}" for i in range(limits.MAX_ENUM_VALUES)]},
        {"enum": ["x" * 6_000, "y" * 6_000]},
        {"type": "string", "maxLength": limits.MAX_COUNTED_CHARS},
        held({"type": "string", "maxLength": limits.MAX_COUNTED_CHARS})[0],
        held({"type": "array", "items": {"type": "string", "minLength": 5, "maxLength": 5000}})[0],
        {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        {"properties": "not an object", "enum": 3, "pattern": 7, "maxLength": "x"},
    ],
)
def test_what_is_let_through(schema: dict[str, Any]) -> None:
    assert schema_refusal(json.dumps(schema)) is None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (properties(limits.MAX_PROPERTIES + 1), "1000 properties"),
        (nested(100), "64 levels"),
        ({"enum": list(range(limits.MAX_ENUM_VALUES + 1))}, "2000 enum values"),
        ({"maxLength": 15_000, "items": {"minLength": 5_001}}, "add up to more than 20000"),
        ({"maxLength": 1e300}, "add up to more than 20000"),
        (held({"type": "string", "minLength": 10**9})[0], "add up to more than 20000"),
        (held({"type": "string", "maxLength": 20_001})[0], "add up to more than 20000"),
        ({"enum": ["x" * 3_000 + str(i) for i in range(2)]}, "equal beginnings"),
        ({"anyOf": [{"const": "x" * 1_000 + str(i)} for i in range(20)]}, "equal beginnings"),
        ({"anyOf": [{"enum": ["x" * 3_000 + str(i)]} for i in range(2)]}, "equal beginnings"),
        ({"properties": {"x" * 1_000 + str(i): {} for i in range(20)}}, "equal beginnings"),
        (
            {"type": "grammar", "grammar": 'root ::= "{0}a" | "{0}b"'.format("x" * 3_000)},
            "equal beginnings",
        ),
        ({"pattern": "a?" * 17}, "16 adjacent optional parts"),
        ({"items": [{"pattern": "(a{1,40}){1,40}"}]}, "multiply to more than 1000"),
        ({"patternProperties": {"a{2000}": {}}}, "multiply to more than 1000"),
        ({"patternProperties": {"\0": {}}}, "U+0000"),
        ({"propertyNames": {"pattern": "\0"}}, "U+0000"),
        ({"format": {"type": "regex", "pattern": "a\0"}}, "U+0000"),
        ({"type": "grammar", "grammar": "\0"}, "U+0000"),
        ({"title": "x" * limits.MAX_SCHEMA_CHARS}, "65536 characters"),
    ],
)
def test_what_is_refused(schema: dict[str, Any], why: str) -> None:
    assert why in (schema_refusal(json.dumps(schema)) or "let through")


def test_the_place_is_named() -> None:
    schema = {"properties": {"a": {"anyOf": [{}, {"pattern": "a{2000}"}]}}}
    found = schema_excess(schema)
    assert found == (
        ".properties.a.anyOf[1]",
        "the repetitions of a pattern multiply to more than 1000",
    )


def test_parts_are_added_up_over_the_whole_schema() -> None:
    halves = {"a": properties(501), "b": {"not": properties(500)}}
    assert "properties" in (schema_refusal(json.dumps(halves)) or "")


def test_deeper_than_the_parser_reads() -> None:
    beside = {"type": "structural_tag", "format": {"type": "or", "elements": [
        {"type": "grammar", "grammar": 'root ::= ("a"{1,99}){1,99}'},
    ]}}  # fmt: skip
    assert "repetitions" in (schema_refusal(json.dumps(beside)) or "")
    assert "levels" in (schema_refusal("[" * 20_000 + "]" * 20_000) or "")


def test_no_json_is_left_to_the_compiler() -> None:
    assert schema_refusal("{nope") is None
    assert schema_refusal("$$ANY$$") is None


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 16, "a?b" * 40, "(ab)?" * 40, r"\s*\d+\s*-\s*\w?" * 8, "a{1000}",
        "(a{10}){10,100}", "a{5,}", "a*b+c?", "x" * 1024, "{,5}",
        "a{0}", r"(\w+ ){1,60}", r"(\w+\s?)+", r"(\d{1,3}\.){3}\d{1,3}", "([a-z]+-){0,30}[a-z]+",
        r"([a-z]{1,3}\.?){3}", r"(a\?b\*){9}",
    ],
)  # fmt: skip
def test_patterns_let_through(pattern: str) -> None:
    assert pattern_refusal(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "a{1001}", "(a{10}){10,101}", "a{99999999999}", "x" * 1025, "[a-z]?" * 17, "\\d*" * 17,
        r"(\w+\s?){1,60}!", "(?:[a-z]{0,5} ?){50}", "([a-z]?[0-9]?){100}",
        r"(\w{1,10}\s?){1,30}", "a{0,1}" * 17, "a{,3}" * 17, "x" + "[\\]]?" * 20 + "y",
    ],
)  # fmt: skip
def test_patterns_refused(pattern: str) -> None:
    assert pattern_refusal(pattern) is not None


def test_the_oldest_grammars_go_where_all_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "CACHE_BYTES", 1000)
    backend = SimpleNamespace(cache={})
    for name in "abc":
        compiled = SimpleNamespace(ctx=SimpleNamespace(memory_size_bytes=400))
        guards.keep_newest(backend, ("json", name), SimpleNamespace(grammar=compiled))
    assert [name for _, name in backend.cache] == ["b", "c"]
    guards.keep_newest(backend, ("json", "d"), SimpleNamespace(error_message="x"))
    assert [name for _, name in backend.cache] == ["b", "c", "d"]
    guards.keep_newest(
        backend, ("json", "e"), SimpleNamespace(ctx=SimpleNamespace(memory_size_bytes=4000))
    )
    assert [name for _, name in backend.cache] == ["e"], "what has just been compiled is used"
    backend.cache.clear()
    guards.keep_newest(backend, ("json", "f"), SimpleNamespace())
    assert [name for _, name in backend.cache] == ["f"]


@pytest.mark.parametrize("error", [ValueError, RuntimeError, IndexError, OverflowError])
def test_a_grammar_raises_what_ends_its_request_alone(error: type[Exception]) -> None:
    def accept(_: Any, token: int) -> None:
        if token:
            raise error

    guarded = guards._raises_one_kind(accept)
    one: Any = SimpleNamespace()
    guarded(one, 0)
    with pytest.raises(ValueError, match=None if error is ValueError else error.__name__):
        guarded(one, 1)


def test_a_grammar_that_takes_long_for_a_token_ends_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_s = [0.0]
    monkeypatch.setattr("time.thread_time", lambda: taken_s[0])

    class Grammar:
        pass

    def take(_: Any, token: float) -> None:
        taken_s[0] += token

    accept: Any = guards._raises_one_kind(take)
    quick, slow = Grammar(), Grammar()
    for _ in range(3):
        accept(quick, guards.TOKEN_LIMIT_S / 2)
    accept(slow, guards.TOKEN_LIMIT_S * 2)
    with pytest.raises(ValueError, match="takes too long"):
        accept(slow, 0)
    accept(quick, 0)


def test_compiling_gives_way_to_the_engines_steps() -> None:
    backend = SimpleNamespace(executor=ThreadPoolExecutor(1))
    guards._new_threads(backend)
    with backend.executor as threads:
        look = threads.submit(
            lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        ).result(20)
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert look == min(own + guards.BELOW_STEPS, guards.LEAST_PRIORITY)


def test_what_compiles_for_long_gives_way_to_all_others() -> None:
    go_on, started = threading.Event(), threading.Event()
    threads: list[int] = []

    def compile_slowly(_: Any, key: str) -> str:
        threads.append(threading.get_native_id())
        started.set()
        go_on.wait(20)
        return key

    dispatch = guards._limited(compile_slowly, lambda _: None, str)
    with ThreadPoolExecutor(1, initializer=guards._give_way) as pool:
        made = pool.submit(dispatch, None, "a")
        started.wait(20)
        try:
            now_s = time.monotonic()
            assert not guards._hold_back(now_s)
            assert os.getpriority(os.PRIO_PROCESS, threads[0]) < guards.LEAST_PRIORITY
            assert guards._hold_back(now_s + guards.LONG_S + 1)
            assert os.getpriority(os.PRIO_PROCESS, threads[0]) == guards.LEAST_PRIORITY
            assert not guards._hold_back(now_s + guards.LONG_S + 2)
        finally:
            go_on.set()
        assert made.result(20) == "a"
    assert not guards._hold_back(now_s + 2 * guards.LONG_S + 1)


def test_the_function_at_fault_is_named() -> None:
    """The whole of them does not compile, and only one does not when it is alone."""

    class Invalid:
        def __init__(self, error_message: str) -> None:
            self.error_message = error_message

    def compiled(_: object, text: str) -> Any:
        return Invalid("no such reference") if "#/nope" in text else "a grammar"

    wrong, right = {"$ref": "#/nope"}, {"type": "object"}
    bodies = [
        with_tools(
            {
                "messages": [{"role": "user", "content": "hi"}],
                "tools": [
                    {"type": "function", "function": {"name": "fine", "parameters": right}},
                    {"type": "function", "function": {"name": "get-it", "parameters": wrong}},
                ],
                **form,
            },
            parses=False,
        )
        for form in ({}, {"regex": "a"})
    ]
    texts = [json.dumps(body["response_format"]) for body in bodies]
    calls = [
        {"properties": {"name": {"enum": [name]}, "parameters": schema}}
        for name, schema in (("fine", right), ("get-it", wrong))
    ]
    texts += [json.dumps({"type": "array", "items": {"anyOf": calls}})]
    texts += [json.dumps({"type": "array", "items": calls[1]})]
    naming = guards._naming(compiled, compiled, Invalid)
    for text in texts:
        assert naming(None, text).error_message == "function 'get-it': no such reference"
    assert naming(None, json.dumps(right)) == "a grammar"
    assert naming(None, json.dumps(wrong)).error_message == "no such reference"
    for odd in ('"#/nope"', '["#/nope"]', '{"items": {"anyOf": "#/nope"}}', '{"format": "#/nope"}'):
        assert naming(None, odd).error_message == "no such reference"


# --- A grammar that takes too long is given up, and others are compiled.


def test_a_grammar_is_given_up_by_the_clock_and_others_get_threads() -> None:
    now_s, go_on = [0.0], threading.Event()
    backend = SimpleNamespace(
        executor=ThreadPoolExecutor(1), _init_value_dispatch=lambda key, _: f"{key} on new threads"
    )
    most = 10_000

    def waiting(grammar: Future[Any]) -> SimpleNamespace:
        return SimpleNamespace(
            grammar=grammar, grammar_wait_ct=0, grammar_key="key", require_reasoning=False
        )

    started = threading.Event()

    def never() -> None:
        started.set()
        go_on.wait()

    stuck = waiting(backend.executor.submit(never))
    started.wait()
    queued = waiting(backend.executor.submit(lambda: "compiled"))
    manager = SimpleNamespace(
        grammar_queue=[stuck, queued, SimpleNamespace(grammar=None, grammar_wait_ct=0)],
        grammar_backend=backend,
        SGLANG_GRAMMAR_MAX_POLL_ITERATIONS=most,
    )
    looks: list[list[int]] = []

    def poll(self: Any) -> list[Any]:
        looks.append([one.grammar_wait_ct for one in self.grammar_queue])
        return []

    look = guards.in_time(poll, lambda: now_s[0])
    try:
        look(manager)
        now_s[0] = guards.COMPILE_LIMIT_S - 1
        manager.grammar_queue.append(waiting(backend.executor.submit(lambda: "later")))
        look(manager)
        now_s[0] = guards.COMPILE_LIMIT_S
        look(manager)
        assert looks == [[0, 0, 0], [0, 0, 0, 0], [most, most, 0, 0]]
        assert backend.executor.submit(lambda: "at once").result() == "at once"
        assert queued.grammar.result(20) == "key on new threads"
    finally:
        go_on.set()


# --- Tokens that hold part of a character tell their own bytes.

BYTE_OF = {"ð": 0xF0, "Ł": 0x9F, "a": 0x61}


@pytest.mark.parametrize(
    ("token", "raw"),
    [("ðŁ", b"\xf0\x9f"), ("<0xE2>", b"\xe2"), ("aŁ", b"a\x9f"), ("<other>", None), (None, None)],
)
def test_an_entry_of_either_kind_of_vocabulary(token: str | None, raw: bytes | None) -> None:
    assert raw_bytes(token, BYTE_OF) == raw


def test_only_what_is_no_whole_text_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "byte_of_char", lambda: BYTE_OF)
    names = {7: "ðŁ", 8: "<special>"}
    manager = SimpleNamespace(tokenizer=SimpleNamespace(convert_ids_to_tokens=names.__getitem__))
    found = [(-0.5, 3, "whole"), (-1.0, 7, "\ufffd"), (-2.0, 8, "\ufffd"), (-3.0, 9, None)]
    told = with_bytes(found, manager, [], [], decode_to_text=True)
    assert told == found, "the texts are as they were"
    texts = [text for _, _, text in told if text is not None]
    assert [text.encode() for text in texts] == [b"whole", b"\xf0\x9f", "\ufffd".encode()]
    assert json.dumps(texts[1]) == '"\\ufffd"'


def test_tokens_with_one_text_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang keeps a token's alternatives by their texts: each stays, the likeliest first."""
    monkeypatch.setattr(guards, "byte_of_char", lambda: BYTE_OF)
    names = {7: "ðŁ", 8: "ð", 9: "Ł"}
    manager = SimpleNamespace(tokenizer=SimpleNamespace(convert_ids_to_tokens=names.__getitem__))
    texts = {7: "\ufffd", 1: "a", 8: "\ufffd", 2: "a", 9: "\ufffd"}
    found = [
        (-float(place), token_id, text) for place, (token_id, text) in enumerate(texts.items())
    ]
    table = {text: value for value, _, text in with_bytes(found, manager)}
    assert [text.encode() for text in table if text] == [b"\xf0\x9f", b"a", b"\xf0", b"a", b"\x9f"]
    assert list(table.values()) == [0.0, -1.0, -2.0, -3.0, -4.0]
    assert logprobs.once({text: value for text, value in table.items() if text}) == {
        r"bytes:\xf0\x9f": 0.0, "a": -1.0, r"bytes:\xf0": -2.0, r"bytes:\x9f": -4.0,
    }  # fmt: skip
    again = with_bytes([(-1.0, 1, "a"), (-1.0, 1, "a")], manager)
    assert {type(text) for _, _, text in again} == {str}


def test_other_encodings_are_the_texts() -> None:
    assert PartialText.of("\ufffd", b"\xf0").encode("utf-16-le") == "\ufffd".encode("utf-16-le")
