"""Section 2: chat completions that are not streamed."""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest

from tests.fixtures.pictures import data_url, png
from tests.integration.contract.conftest import CHAT, MODEL, Live, error_of

FINISH = {"stop", "length", "tool_calls", "content_filter", "function_call"}


def refused(live: Live, param: str, **more: Any) -> None:
    error = error_of(live.ask("hi", **more), 400)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def accepted(live: Live, **more: Any) -> dict[str, Any]:
    reply = live.ask("hi", **more)
    assert reply.status_code == 200, (more, reply.text)
    body: dict[str, Any] = reply.json()
    return body


@pytest.mark.contract("C-02", "C-07", "C-08")
def test_c_01_keys_of_a_reply(live: Live) -> None:
    before = int(time.time())  # noqa: TID251 - compared with the reply's wall clock
    body = accepted(live)
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert before - 5 <= body["created"] <= before + 5
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert isinstance(usage["prompt_tokens_details"]["cached_tokens"], int)
    assert isinstance(usage["completion_tokens_details"]["reasoning_tokens"], int)


@pytest.mark.contract("C-05")
def test_c_03_keys_of_a_choice_and_its_message(live: Live) -> None:
    (choice,) = accepted(live)["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason"}
    assert choice["logprobs"] is None
    assert set(choice["message"]) == {"role", "content", "refusal"}
    assert (choice["message"]["role"], choice["message"]["refusal"]) == ("assistant", None)


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "matched_stop", "abort"])
def test_c_04_finish_reasons(live: Live, reason: str) -> None:
    reply = live.ask(f"fake:finish={reason}")
    if reason == "abort":
        assert error_of(reply, 503)["code"] == "engine_unavailable"
    else:
        assert reply.json()["choices"][0]["finish_reason"] in FINISH
    assert "matched_stop" not in reply.text


def test_c_09_model_and_messages_are_required(live: Live) -> None:
    with live.http() as http:
        for body, param in (
            ({"messages": [{"role": "user", "content": "x"}]}, "model"),
            ({"model": MODEL}, "messages"),
            ({"model": MODEL, "messages": []}, "messages"),
            ({"model": MODEL, "messages": None}, "messages"),
        ):
            assert error_of(http.post(CHAT, json=body), 400)["param"] == param


def test_c_10_every_role(live: Live) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "t"},
        {"role": "function", "name": "f", "content": "r"},
    ]
    with live.http() as http:
        reply = http.post(CHAT, json={"model": MODEL, "messages": messages})
    assert reply.status_code == 200, reply.text


def test_c_11_content_as_parts(live: Live) -> None:
    parts = [{"type": "text", "text": "fake:text=one"}]
    with live.http() as http:
        body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": parts}]}
        reply = http.post(CHAT, json=body)
        assert reply.json()["choices"][0]["message"]["content"] == "one"
        parts[0] = {"type": "input_audio"}
        error = error_of(http.post(CHAT, json=body), 400)
    assert (error["param"], error["code"]) == (
        "messages[0].content[0].type",
        "unsupported_content",
    )


def test_c_11_an_image_for_a_model_that_reads_none(live: Live) -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(png())}}
    parts = [{"type": "text", "text": "What is this?"}, image]
    asked = {"model": MODEL, "messages": [{"role": "user", "content": parts}]}
    with live.http() as http:
        for stream in (False, True):
            error = error_of(http.post(CHAT, json={**asked, "stream": stream}), 400)
            assert error["param"] == "messages[0].content[1].type"
            assert error["code"] == "unsupported_content"
            assert "text only" in error["message"]


RANGES = (
    ("temperature", 0, 2),
    ("top_p", 0, 1),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
)


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_c_12_ranges(live: Live, name: str, low: int, high: int) -> None:
    for good in (low, high, (low + high) / 2):
        accepted(live, **{name: good})
    for bad in (low - 0.1, high + 0.1, "x", True):
        refused(live, name, **{name: bad})


def test_c_13_several_choices(live: Live) -> None:
    choices = accepted(live, n=5)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3, 4]
    assert len(accepted(live, n=128, max_tokens=1)["choices"]) == 128
    for bad in (0, 129, -1, 1.5):
        refused(live, "n", n=bad)


def test_c_14_the_newer_limit_wins(live: Live) -> None:
    for limits, num_tokens in (
        ({"max_completion_tokens": 3}, 3),
        ({"max_tokens": 4}, 4),
        ({"max_completion_tokens": 3, "max_tokens": 9}, 3),
    ):
        assert accepted(live, **limits)["usage"]["completion_tokens"] == num_tokens
    refused(live, "max_completion_tokens", max_completion_tokens=0)


def test_c_15_an_answer_cut_at_its_limit(live: Live) -> None:
    body = live.ask("fake:text=a_b_c_d_e", max_completion_tokens=2).json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "a b"


def test_c_16_stop_texts(live: Live) -> None:
    for good in ("x", ["a", "b", "c", "d"]):
        accepted(live, stop=good)
        assert live.engine.received[-1]["stop"] == good
    refused(live, "stop", stop=["a", "b", "c", "d", "e"])
    refused(live, "stop", stop=7)


@pytest.mark.contract("C-19")
def test_c_18_bias_and_seed_reach_the_engine(live: Live) -> None:
    accepted(live, logit_bias={"50256": -100, "11": 100}, seed=2**63 - 1)
    sent = live.engine.received[-1]
    assert sent["logit_bias"] == {"50256": -100, "11": 100}
    assert sent["seed"] == 2**63 - 1
    refused(live, "logit_bias.1", logit_bias={"1": 101})
    refused(live, "seed", seed=2**63)
    texts = {
        accepted(live, seed=7, temperature=0)["choices"][0]["message"]["content"] for _ in range(2)
    }
    assert len(texts) == 1


SCHEMA = {"name": "s", "schema": {"type": "object"}, "strict": True}


def test_c_20_response_formats(live: Live) -> None:
    for good in (
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": SCHEMA},
    ):
        accepted(live, response_format=good)
        assert live.engine.received[-1]["response_format"] == good
    refused(live, "response_format.type", response_format={"type": "yaml"})
    refused(live, "response_format.json_schema", response_format={"type": "json_schema"})


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.contract("C-22")
def test_c_21_tools_and_the_choice_among_them(live: Live) -> None:
    named = {"type": "function", "function": {"name": "f"}}
    for choice in ("none", "auto", "required", named):
        accepted(live, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
        sent = live.engine.received[-1]
        if choice == "auto":
            # This engine has no tool-call parser: the tools are told in words (test_tool_calls.py).
            assert sent["response_format"]["format"]["stop_after_first"]
            assert "tools" not in sent
            continue
        assert (sent["tools"], sent["tool_choice"]) == ([TOOL], choice)
        assert sent["parallel_tool_calls"] is False
    refused(live, "tool_choice", tools=[TOOL], tool_choice="sometimes")
    refused(live, "tool_choice", tool_choice="required")
    other = {"type": "function", "function": {"name": "g"}}
    refused(live, "tool_choice", tools=[TOOL], tool_choice=other)


@pytest.mark.contract("C-24")
def test_c_23_fields_that_describe_the_call(live: Live) -> None:
    accepted(
        live,
        user="u",
        safety_identifier="s" * 64,
        metadata={"k" * 64: "v" * 512},
        store=True,
        prompt_cache_key="p",
        reasoning_effort="low",
        verbosity="high",
    )
    refused(live, "safety_identifier", safety_identifier="s" * 65)
    refused(live, "metadata", metadata={str(i): "" for i in range(17)})
    refused(live, "metadata", metadata={"k" * 65: ""})
    refused(live, "metadata.k", metadata={"k": "v" * 513})


@pytest.mark.contract("C-26")
def test_c_25_service_tiers(live: Live) -> None:
    served = {"auto": "default", "default": "default", "flex": "flex", "scale": "default"}
    for tier in ("auto", "default", "flex", "scale", "priority", "fast"):
        assert accepted(live, service_tier=tier)["service_tier"] == served.get(tier, "default")
    assert "service_tier" not in accepted(live, service_tier=None)
    refused(live, "service_tier", service_tier="gold")


def test_c_28_private_fields_stay_outside(live: Live) -> None:
    with live.http() as http:
        http.headers.update({"x-override-priority": "9", "x-override-rid": "mine"})
        assert http.post(CHAT, json=live.chat("hi", priority=None)).status_code == 200
    sent = live.engine.received[-1]
    assert sent["priority"] == 0
    assert sent["rid"] != "mine"
    for name in ("priority", "rid", "bootstrap_host", "lora_path", "custom_logit_processor"):
        refused(live, name, **{name: "x"})


def test_c_29_stream_false_is_no_stream(live: Live) -> None:
    plain, explicit = accepted(live), accepted(live, stream=False)
    assert set(plain) == set(explicit)
    assert explicit["object"] == "chat.completion"


def test_c_30_stream_options_without_a_stream(live: Live) -> None:
    refused(live, "stream_options", stream_options={"include_usage": True})
    refused(live, "stream_options", stream_options={"include_usage": True}, stream=False)


@pytest.mark.contract("T-17", "T-14")
def test_each_status_is_its_class_in_the_sdk(live: Live) -> None:
    with live.client() as client:
        for order, kind in (
            ({"temperature": 9}, openai.BadRequestError),
            ({"model": "gpt-9"}, openai.NotFoundError),
        ):
            with pytest.raises(kind):
                client.chat.completions.create(**{**live.chat("hi"), **order})
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**live.chat("fake:status=500"))
    with live.http() as http:
        assert error_of(http.get("/v1/nope"), 404)["code"] == "unknown_url"
        wrong = http.put(CHAT)
        assert error_of(wrong, 405)["type"] == "invalid_request_error"
