from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.chunks import ChunkWriter, StreamHead
from api.replies import conforming_reply
from api.tool_calls import CallReader, ToolOffer, offer_of
from engine_adapter.client.base import CHAT_PATH

CITY = '{"city": "a \\"}]\\\\", "days": [1, {"x": 2}]}'
TEXT = f'[{{"name": "get_weather", "parameters": {CITY}}}, {{"name": "g", "parameters": {{}}}}]'
CALLS = [("get_weather", CITY), ("g", "{}")]
NAMED = {"type": "function", "function": {"name": "f"}}
FORCED = ToolOffer("tool_calls")


def read(pieces: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """Calls as a client puts them together."""
    reader, calls = CallReader(listed=True), list[list[str]]()
    for piece in pieces:
        plain, deltas = reader.feed(piece)
        assert not plain
        for delta in deltas:
            if "id" in delta:
                assert delta["id"].startswith("call_")
                assert (delta["index"], delta["type"]) == (len(calls), "function")
                calls.append([delta["function"]["name"], ""])
            assert delta["index"] == len(calls) - 1
            calls[-1][1] += delta["function"]["arguments"]
    return [(name, arguments) for name, arguments in calls], reader.complete


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("text", [TEXT, TEXT.replace("}, {", "} \n,{").replace("[{", "[ \n{")])
def test_calls_are_the_same_however_their_text_is_cut(text: str, size: int) -> None:
    calls, complete = read([text[i : i + size] for i in range(0, len(text), size)])
    assert complete
    assert calls == CALLS


def test_a_cut_list_gives_what_there_is_of_it() -> None:
    for end in range(len(TEXT)):
        calls, complete = read([TEXT[:end]])
        assert not complete
        for (name, arguments), (full_name, full) in zip(calls, CALLS, strict=False):
            assert name == full_name
            assert full.startswith(arguments)


def test_what_a_body_says_of_its_tools() -> None:
    tools = [NAMED]
    assert offer_of({"tools": tools, "tool_choice": "required"}) == ToolOffer("tool_calls")
    assert offer_of({"tools": tools, "tool_choice": NAMED}) == ToolOffer("stop")
    for free in ({}, {"tool_choice": None}, {"tool_choice": "auto"}):
        assert offer_of({"tools": tools, **free}) == ToolOffer()
    assert offer_of({"tools": tools, "parallel_tool_calls": False}) == ToolOffer(single=True)
    for mode, forced in (("auto", None), ("required", "tool_calls")):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
        assert offer_of({"tools": tools, "tool_choice": allowed}) == ToolOffer(forced)
    nothing: list[dict[str, Any]] = [{}, {"tools": []}, {"tools": tools, "tool_choice": "none"}]
    assert [offer_of(body) for body in nothing] == [None] * 3


def whole(message: dict[str, Any], finish: str, offer: ToolOffer | None) -> dict[str, Any]:
    answer = {"choices": [{"message": message, "finish_reason": finish, "index": 0}]}
    body, _ = conforming_reply(CHAT_PATH, "rid", "m", answer, offer=offer)
    choice: dict[str, Any] = body["choices"][0]
    return choice


def streamed(
    pieces: list[dict[str, Any]], finish: str, offer: ToolOffer | None
) -> tuple[list[dict[str, Any]], str]:
    """Deltas after the role chunk's, without the finish chunk's, and its finish reason."""
    head = StreamHead(
        chat=True, public_id="i", created=1, model="m", include_usage=False, offer=offer
    )
    writer = ChunkWriter(head, 0)
    choices = [
        *({"delta": piece, "finish_reason": None} for piece in pieces),
        {"delta": {}, "finish_reason": finish},
    ]
    raw = b"".join(writer.feed(orjson.dumps({"choices": [choice]})) for choice in choices)
    sent = [orjson.loads(event[6:])["choices"][0] for event in raw.split(b"\n\n")[:-1]]
    assert [one["finish_reason"] for one in sent[:-1]] == [None] * (len(sent) - 1)
    assert sent[0]["delta"]["role"] == "assistant"
    return [one["delta"] for one in sent[1:-1]], sent[-1]["finish_reason"]


def content(*texts: str) -> list[dict[str, Any]]:
    return [{"content": text} for text in texts]


@pytest.mark.contract("C-06")
@pytest.mark.parametrize("forced", ["tool_calls", "stop"])
def test_forced_calls_in_a_whole_reply(forced: str) -> None:
    choice = whole({"content": TEXT}, "stop", ToolOffer(forced))
    assert choice["finish_reason"] == forced
    message = choice["message"]
    assert message["content"] is None
    assert all(set(call) == {"id", "type", "function"} for call in message["tool_calls"])
    made = [
        (one["function"]["name"], one["function"]["arguments"]) for one in message["tool_calls"]
    ]
    assert made == CALLS
    assert len({call["id"] for call in message["tool_calls"]}) == 2


@pytest.mark.contract("S-12")
@pytest.mark.parametrize("forced", ["tool_calls", "stop"])
def test_forced_calls_in_a_stream(forced: str) -> None:
    deltas, finish = streamed(content(TEXT[:20], TEXT[20:50], TEXT[50:]), "stop", ToolOffer(forced))
    assert finish == forced
    assert all(set(delta) == {"tool_calls"} for delta in deltas)
    arguments = ["", ""]
    for call in (call for delta in deltas for call in delta["tool_calls"]):
        arguments[call["index"]] += call["function"]["arguments"]
    assert arguments == [full for _, full in CALLS]


def test_a_cut_answer_says_length_and_gives_what_there_is() -> None:
    cut = TEXT[:60]
    choice = whole({"content": cut}, "length", FORCED)
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert CITY.startswith(call["function"]["arguments"])
    deltas, finish = streamed(content(cut), "length", FORCED)
    assert finish == "length"
    assert deltas[0]["tool_calls"][0]["function"] == call["function"]
    # A stop text of the caller's ended it: no finished call, so not "tool_calls" either.
    assert whole({"content": cut}, "stop", FORCED)["finish_reason"] == "stop"


@pytest.mark.parametrize("text", ["I would rather not.", '[{"name": "get_'])
def test_text_without_a_call_stays_text(text: str) -> None:
    choice = whole({"content": text}, "length", FORCED)
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, "length")
    assert "tool_calls" not in choice["message"]
    deltas, finish = streamed(content(text[:5], text[5:]), "length", FORCED)
    assert (deltas, finish) == (content(text), "length")


def test_an_engine_that_makes_calls_itself_is_left_alone() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    more = {**call, "index": 1, "id": "d"}
    offer = ToolOffer("stop", single=True)
    choice = whole({"content": "", "tool_calls": [call, more]}, "tool_calls", offer)
    assert [one["id"] for one in choice["message"]["tool_calls"]] == ["c"]
    assert choice["finish_reason"] == "stop", "OpenAI says so where a function is named"
    deltas, finish = streamed(
        [*content(" "), {"tool_calls": [call]}, *content("so")], "tool_calls", ToolOffer()
    )
    assert deltas == [{"content": " ", "tool_calls": [call]}, {"content": "so"}]
    assert finish == "tool_calls"


def test_an_answer_without_tools_is_not_rewritten() -> None:
    assert whole({"content": TEXT}, "stop", None)["message"]["content"] == TEXT
    assert streamed(content(TEXT), "stop", None) == (content(TEXT), "stop")


def tagged(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


BOTH = "\n".join(tagged(*call) for call in CALLS)


def put_together(deltas: list[dict[str, Any]]) -> tuple[str, list[tuple[str, str]]]:
    text, calls = "", dict[int, list[str]]()
    for delta in deltas:
        text += delta.get("content", "")
        for call in delta.get("tool_calls", ()):
            made = calls.setdefault(call["index"], ["", ""])
            made[0] += call["function"].get("name", "")
            made[1] += call["function"]["arguments"]
    return text, [(name, arguments) for name, arguments in calls.values()]


@pytest.mark.contract("C-06", "C-21", "S-12")
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("written", "text", "calls"),
    [
        (BOTH, "", CALLS),
        (f"I look.\n{BOTH}\n", "I look.", CALLS),
        ("a <tool", "a <tool", []),
        ("1 < 2 <tool_call is", "1 < 2 <tool_call is", []),
        (f"{tagged('g', '{}')} and so", "and so", [("g", "{}")]),
    ],
)
def test_calls_the_model_chose_in_text(
    written: str, text: str, calls: list[tuple[str, str]], size: int
) -> None:
    pieces = content(*(written[i : i + size] for i in range(0, len(written), size)))
    deltas, finish = streamed(pieces, "stop", ToolOffer())
    assert put_together(deltas) == (text, calls)
    assert finish == ("tool_calls" if calls else "stop")
    choice = whole({"content": written}, "stop", ToolOffer())
    assert choice["message"]["content"] == (text or None)
    made = [one["function"] for one in choice["message"].get("tool_calls", ())]
    assert [(one["name"], one["arguments"]) for one in made] == calls
    assert choice["finish_reason"] == finish


def test_a_call_that_is_cut_shows_no_notation() -> None:
    for end in range(len(BOTH)):
        choice = whole({"content": BOTH[:end]}, "length", ToolOffer())
        assert choice["finish_reason"] == "length"
        assert "tool_call>" not in (choice["message"]["content"] or "")
        deltas, finish = streamed(content(BOTH[:end]), "length", ToolOffer())
        assert finish == "length"
        text, calls = put_together(deltas)
        assert (text or "") == (choice["message"]["content"] or "")
        for (name, arguments), (full_name, full) in zip(calls, CALLS, strict=False):
            assert name == full_name
            assert full.startswith(arguments)


@pytest.mark.contract("E-10")
@pytest.mark.parametrize("mark", ["<|im_end|>", "</s>", "<end_of_turn>"])
def test_the_end_of_a_turn_never_leaks(mark: str) -> None:
    """SGLang keeps special tokens where tools are given, and cuts none off at the limit."""
    choice = whole({"content": f"Paris{mark}"}, "length", ToolOffer())
    assert choice["message"]["content"] == "Paris"
    assert streamed(content("Paris", mark), "length", ToolOffer())[0] == content("Paris")
    kept = whole({"content": f"Paris{mark}"}, "length", ToolOffer(plain_ends=False))
    assert kept["message"]["content"] == f"Paris{mark}", "the caller asked for special tokens"


@pytest.mark.contract("E-11")
def test_log_probabilities_are_those_of_the_text() -> None:
    def probable(*texts: str) -> list[dict[str, Any]]:
        return [{"token": text, "logprob": -1.0} for text in texts]

    head = StreamHead(
        chat=True, public_id="i", created=1, model="m", include_usage=False, offer=ToolOffer()
    )
    writer = ChunkWriter(head, 0)
    shown: list[str] = []
    for text in ("a", " <", "b", *BOTH):
        choice = {"delta": {"content": text}, "logprobs": {"content": probable(text)}}
        raw = writer.feed(orjson.dumps({"choices": [choice]}))
        for event in raw.split(b"\n\n")[:-1]:
            logprobs = orjson.loads(event[6:])["choices"][0]["logprobs"]
            shown += [one["token"] for one in (logprobs or {"content": []})["content"]]
    assert shown[:3] == ["a", " <", "b"]
    assert "n" not in shown, "a call's notation is nobody's text"


FORMED = ToolOffer(formed=True)
QUOTED = '{"a": "<tool_call>\\n{\\"name\\": \\"g\\"", "b": "<tool_call>"}'
TAGGED = f'<tool_call>\n{{"name": "get_weather", "arguments": {CITY}}}\n</tool_call>'


def test_a_form_is_told_apart_from_a_call() -> None:
    form = {"type": "json_object"}
    for asked in ({"response_format": form}, {"regex": "a"}, {"ebnf": "root ::= root"}):
        assert offer_of({"tools": [NAMED], **asked}) == FORMED
        assert offer_of({"tools": [NAMED], "tool_choice": "required", **asked}) == FORCED
    assert offer_of({"tools": [NAMED], "response_format": {"type": "text"}}) == ToolOffer()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("text", [QUOTED, "", " ", "<", "<tool_cal", f"a {TAGGED}"])
def test_what_does_not_begin_with_a_call_has_none(text: str, size: int) -> None:
    reader, plain = CallReader(listed=False, formed=True), ""
    for i in range(0, len(text), size):
        more, deltas = reader.feed(text[i : i + size])
        assert not deltas
        plain += more
    assert plain + reader.rest(cut=False) == text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_what_begins_with_a_call_is_calls(size: int) -> None:
    reader, made, text = CallReader(listed=False, formed=True), "", f"{TAGGED}\n{TAGGED}"
    for i in range(0, len(text), size):
        more, deltas = reader.feed(text[i : i + size])
        assert not more
        made += "".join(one["function"]["arguments"] for one in deltas)
    assert (reader.num_calls, made) == (2, CITY + CITY)
    assert not reader.rest(cut=False)
