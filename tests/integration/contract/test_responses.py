"""Section P: responses, made and streamed."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import openai
import orjson
import pytest

from tests.fixtures.pictures import data_url, png
from tests.fixtures.response_events import EventReader, check_response, read_stream
from tests.integration.contract.conftest import MODEL, Live, error_of

RESPONSES = "/v1/responses"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True},
    {"type": "function", "name": "get_time", "parameters": CITY, "strict": None},
]


def ask(live: Live, given: Any = "fake:text=Paris", **more: Any) -> httpx.Response:
    with live.http() as http:
        return http.post(RESPONSES, json={"model": MODEL, "input": given, "store": False, **more})


def made(live: Live, given: Any = "fake:text=Paris", **more: Any) -> dict[str, Any]:
    reply = ask(live, given, **more)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    check_response(body)
    return body


def streamed(live: Live, given: Any = "fake:text=Paris", **more: Any) -> EventReader:
    reply = ask(live, given, stream=True, **more)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return read_stream(reply.content)


def texts(body: dict[str, Any]) -> list[str]:
    return [part["text"] for item in body["output"] for part in item.get("content", ())]


@pytest.mark.contract("P-14")
def test_p_01_keys_of_a_response(live: Live) -> None:
    before = time.time()  # noqa: TID251 - compared with the reply's wall clock
    body = made(live, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5)
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", MODEL)
    assert body["id"].startswith("resp_")
    assert before - 5 <= body["created_at"] <= body["completed_at"] <= before + 60
    assert (body["instructions"], body["metadata"]) == ("Be brief.", {"a": "b"})
    assert (body["temperature"], body["top_p"], body["error"]) == (0.5, None, None)
    (item,) = body["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert texts(body) == ["Paris"]
    usage = body["usage"]
    assert usage["input_tokens"] == 3
    assert usage["output_tokens"] == 1
    assert usage["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("name", ["model", "input"])
def test_p_02_model_and_input_are_required(live: Live, name: str) -> None:
    error = error_of(ask(live, **{name: None}) if name == "model" else ask(live, None), 400)
    assert (error["param"], error["code"]) == (name, "missing_required_parameter")
    with live.http() as http:
        unknown = http.post(RESPONSES, json={"model": "none", "input": "x"})
    assert error_of(unknown, 404)["code"] == "model_not_found"


def test_p_03_text_and_items_as_input(live: Live) -> None:
    items = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "a", "annotations": []}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "fake:text=one"}]},
    ]  # fmt: skip
    assert texts(made(live, items, instructions="i")) == ["one"]
    messages = live.engine.received[-1]["messages"]
    assert messages[0] == {"role": "system", "content": "i\n\nd"}
    assert [message["role"] for message in messages[1:]] == ["user", "assistant", "user"]
    audio = [{"role": "user", "content": [{"type": "input_audio"}]}]
    error = error_of(ask(live, audio), 400)
    assert (error["param"], error["code"]) == ("input[0].content[0].type", "unsupported_content")
    url = data_url(png())
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    error = error_of(ask(live, image), 400)
    assert (error["param"], error["code"]) == ("input", "unsupported_content")


def test_p_32_the_beginning_of_a_conversation_is_left_out(live: Live) -> None:
    talk = [
        {"role": "user", "content": "old " * 1500},
        {"role": "assistant", "content": "older " * 500},
        {"role": "user", "content": "new " * 500},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "fake:text=one"},
    ]
    error = error_of(ask(live, talk), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    whole = made(live, talk, instructions="i", truncation="auto")
    events = streamed(live, talk, instructions="i", truncation="auto").finish()
    for body in (whole, events):
        assert (body["truncation"], texts(body)) == ("auto", ["one"])
    for sent in live.engine.received[-1], live.engine.received[-3]:
        first, *rest = [message["content"].split()[0] for message in sent["messages"]]
        assert (first, rest) == ("i", ["new", "answer", "fake:text=one"])
    alone = error_of(ask(live, "long " * 3000, truncation="auto"), 400)
    assert (alone["code"], alone["param"]) == ("context_length_exceeded", "input")


def test_p_04_calls_and_their_outputs(live: Live) -> None:
    for reader in (None, streamed(live, "hi", tools=TOOLS, tool_choice="required")):
        body = reader.finish() if reader else made(live, "hi", tools=TOOLS, tool_choice="required")
        calls = body["output"]
        assert [call["name"] for call in calls] == ["get_weather", "get_time"]
        assert {call["arguments"] for call in calls} == {'{"city": "number 0"}'}
        assert body["tools"][0]["name"] == "get_weather"
    named = {"type": "function", "name": "get_time"}
    (call,) = made(live, "hi", tools=TOOLS, tool_choice=named)["output"]
    assert call["name"] == "get_time"
    one = made(live, "hi", tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert len(one["output"]) == 1
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "noon"}
    again = [{"role": "user", "content": "hi"}, call, output]
    assert texts(made(live, again, tools=TOOLS, tool_choice="none"))
    *_, turn, tool = live.engine.received[-1]["messages"]
    assert "get_time" in turn["content"]
    assert "noon" in tool["content"]
    assert error_of(ask(live, [output]), 400)["param"] == "input"


def test_p_04_a_call_of_the_models_own_choice(live: Live) -> None:
    for body in (
        made(live, "fake:call=get_weather", tools=TOOLS),
        streamed(live, "fake:call=get_weather", tools=TOOLS).finish(),
    ):
        message, call = body["output"]
        assert message["content"][0]["text"].strip() == "I look."
        assert (call["type"], call["name"]) == ("function_call", "get_weather")
        assert json.loads(call["arguments"]) == {"city": "a }] b"}


BUILT_IN: list[dict[str, Any]] = [
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation"},
    {"type": "mcp", "server_label": "s"},
    {"type": "local_shell"},
    {"type": "custom", "name": "c"},
]


@pytest.mark.parametrize("tool", BUILT_IN, ids=lambda tool: tool["type"])
def test_p_05_built_in_tools_are_refused_by_name(live: Live, tool: dict[str, Any]) -> None:
    tools = [TOOLS[0], tool]
    for body in (made(live, tools=tools), streamed(live, tools=tools).finish()):
        (warning,) = body["warnings"]
        assert f"'{tool['type']}'" in warning["message"]
    error = error_of(ask(live, tools=tools, tool_choice={"type": tool["type"]}), 400)
    assert (error["param"], error["code"]) == ("tool_choice.type", "unsupported_tool")
    assert f"'{tool['type']}'" in error["message"]


def test_p_06_text_formats(live: Live) -> None:
    schema = {"type": "json_schema", "name": "n", "schema": CITY, "strict": True}
    for chosen in ({"type": "text"}, {"type": "json_object"}, schema):
        body = made(live, text={"format": chosen})
        assert body["text"]["format"] == chosen
    sent = live.engine.received[-1]["response_format"]
    assert sent == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": CITY, "strict": True},
    }
    wrong = error_of(ask(live, text={"format": {"type": "json_schema", "name": "n"}}), 400)
    assert wrong["param"] == "text.format.schema"


@pytest.mark.contract("P-08")
def test_p_07_typed_events_in_order(live: Live) -> None:
    reader = streamed(live, "fake:text=one_two_three")
    assert reader.kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    whole = made(live, "fake:text=one_two_three")
    own = ("id", "created_at", "completed_at", "output")
    told = reader.finish()
    assert {k: v for k, v in told.items() if k not in own} == {
        k: v for k, v in whole.items() if k not in own
    }
    assert texts(told) == texts(whole) == ["one two three"]


def test_p_07_the_official_clients_stream_helper(live: Live) -> None:
    with (
        live.client() as client,
        client.responses.stream(model=MODEL, input="fake:text=one_two", store=False) as stream,
    ):
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "one two"


def test_p_09_an_error_before_the_first_event(live: Live) -> None:
    for stream in (True, False):
        failed = ask(live, "fake:status=503", stream=stream)
        assert error_of(failed, 503)["code"] == "server_is_overloaded"
        long = error_of(ask(live, "x " * 5000, stream=stream), 400)
        assert (long["code"], long["param"]) == ("context_length_exceeded", "input")
        big = error_of(ask(live, "x", stream=stream, max_output_tokens=2_000_000), 400)
        assert big["param"] == "max_output_tokens"


@pytest.mark.parametrize("order", ["fail_after=2", "finish=abort"])
def test_p_10_an_error_after_the_first_event(live: Live, order: str) -> None:
    reader = streamed(live, f"fake:token_ms=20 fake:{order}")
    assert reader.kinds[-1] == "response.failed"
    assert reader.finish()["error"]["code"] == "server_error"


def test_p_11_an_answer_cut_at_its_limit_is_incomplete(live: Live) -> None:
    cut: dict[str, Any] = {"given": "fake:tokens=9", "max_output_tokens": 4}
    for body in (made(live, **cut), streamed(live, **cut).finish()):
        assert body["status"] == body["output"][-1]["status"] == "incomplete"
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        assert body["usage"]["output_tokens"] == 4


def test_p_12_log_probabilities_are_asked_for(live: Live) -> None:
    made(live, include=["message.output_text.logprobs"], top_logprobs=3)
    sent = live.engine.received[-1]
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 3)
    made(live)
    assert "logprobs" not in live.engine.received[-1]


@pytest.mark.parametrize(
    ("asked", "served"), [(None, "default"), ("auto", "default"), ("flex", "flex")]
)
def test_p_13_service_tiers(live: Live, asked: str | None, served: str) -> None:
    assert made(live, service_tier=asked)["service_tier"] == served
    ours = live.engine.received[-1].get("custom_params", {"coserve": {"class": "online"}})
    assert ours["coserve"]["class"] == ("flex" if served == "flex" else "online")


def test_p_14_calls_are_billed_as_chat(live: Live) -> None:
    body = made(live, "fake:tokens=6")
    before = live.engine.served["online"].completion_tokens
    made(live, "fake:tokens=6")
    streamed(live, "fake:tokens=6")
    assert live.engine.served["online"].completion_tokens - before == 12
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + 6


def test_p_15_a_client_that_goes_away_frees_its_slot(live: Live) -> None:
    with live.http() as http:
        slow = {"model": MODEL, "input": "fake:tokens=500 fake:token_ms=20", "stream": True}
        with http.stream("POST", RESPONSES, json={**slow, "store": False}) as reply:
            pieces = reply.iter_bytes()  # kept: the connection is closed with it
            assert b"response.created" in next(pieces)
            assert live.engine.running
    deadline = time.monotonic() + 10
    while live.engine.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not live.engine.running


def test_the_official_clients_parser_of_structured_outputs(live: Live) -> None:
    from pydantic import BaseModel

    class Number(BaseModel):
        value: int

    text = json.dumps({"value": 4}).replace(" ", "_")
    with live.client(_strict_response_validation=True) as client:
        parsed = client.responses.parse(
            model=MODEL, input=f"fake:text={text}", text_format=Number, store=False
        )
    assert parsed.output_parsed == Number(value=4)


def test_odd_bodies_are_refused_in_the_envelope(live: Live) -> None:
    with live.http() as http:
        for raw in (b"{", b"[]", b'"x"'):
            headers = {"content-type": "application/json"}
            error_of(http.post(RESPONSES, content=raw, headers=headers), 400)
        deep = orjson.dumps({"model": MODEL, "input": "x", "text": {"format": None}})
        assert http.post(RESPONSES, content=deep).status_code == 200
        assert http.put(RESPONSES, json={}).status_code == 405
    with pytest.raises(openai.AuthenticationError), live.client(api_key="sk-no") as client:
        client.responses.create(model=MODEL, input="x")
