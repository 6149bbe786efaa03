"""Section 3: streamed chat; section 4: completions."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.integration.contract.conftest import CHAT, MODEL, Live, error_of


@pytest.mark.contract("S-20")
def test_s_01_headers_of_a_stream(live: Live) -> None:
    with live.http() as http:
        http.headers["accept-encoding"] = "gzip, br"
        reply = http.post(CHAT, json=live.chat("hi", stream=True))
    assert reply.headers["content-type"].split(";")[0] == "text/event-stream"
    assert reply.headers["cache-control"] == "no-cache"
    assert "content-encoding" not in reply.headers


@pytest.mark.contract("S-03", "S-04", "S-05", "S-06", "S-08", "S-10")
def test_s_02_a_stream_from_role_to_done(live: Live) -> None:
    *chunks, done = live.events('fake:text=a_\\n_"b"_é😀')
    assert done == "[DONE]"
    for chunk in chunks:
        assert set(chunk) == {"id", "object", "created", "model", "choices"}
        assert chunk["object"] == "chat.completion.chunk"
        assert {"index", "delta", "finish_reason"} <= set(chunk["choices"][0])
    for name in ("id", "created", "model"):
        assert len({chunk[name] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"]["role"] == "assistant"
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert (choices[-1]["finish_reason"], choices[-1]["delta"]) == ("stop", {})


def test_s_09_usage_in_one_more_chunk(live: Live) -> None:
    *chunks, last, done = live.events("a fake:tokens=3", stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert (last["usage"]["completion_tokens"], last["usage"]["total_tokens"]) == (3, 5)


def test_s_11_obfuscation_is_accepted(live: Live) -> None:
    for wanted in (True, False):
        *chunks, done = live.events("hi", stream_options={"include_obfuscation": wanted})
        assert done == "[DONE]"
        assert not any("obfuscation" in chunk for chunk in chunks)


@pytest.mark.contract("S-17")
def test_s_16_an_error_in_the_middle(live: Live) -> None:
    *chunks, last = live.events("fake:token_ms=20 fake:fail_after=3")
    assert list(last) == ["error"]
    assert list(last["error"]) == ["message", "type", "param", "code"]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    with live.client() as client:
        stream = client.chat.completions.create(
            **live.chat("fake:token_ms=20 fake:fail_after=3"), stream=True
        )
        with pytest.raises(openai.APIError, match=r"engine"):
            for _ in stream:
                pass


def complete(live: Live, **more: Any) -> dict[str, Any]:
    with live.http() as http:
        reply = http.post("/v1/completions", json={"model": MODEL, "prompt": "hi", **more})
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def refuse(live: Live, param: str, **more: Any) -> None:
    with live.http() as http:
        body = {"model": MODEL, "prompt": "hi", **more}
        reply = http.post("/v1/completions", json=body)
    assert error_of(reply, 400)["param"] == param


@pytest.mark.contract("L-02", "L-04")
def test_l_01_a_completion(live: Live) -> None:
    body = complete(live)
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    (choice,) = body["choices"]
    assert set(choice) == {"text", "index", "logprobs", "finish_reason"}
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 16
    for reason in ("stop", "matched_stop"):
        (choice,) = complete(live, prompt=f"fake:finish={reason}")["choices"]
        assert choice["finish_reason"] in ("stop", "length", "content_filter")


@pytest.mark.parametrize(
    ("prompt", "num_prompts"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2)]
)
def test_l_03_forms_of_prompts_times_n(live: Live, prompt: Any, num_prompts: int) -> None:
    choices = complete(live, prompt=prompt, n=3, max_tokens=1)["choices"]
    assert [choice["index"] for choice in choices] == list(range(3 * num_prompts))


def test_l_05_echo_suffix_best_of(live: Live) -> None:
    complete(live, echo=True)
    assert live.engine.received[-1]["echo"] is True
    assert len(complete(live, n=2, best_of=2)["choices"]) == 2
    refuse(live, "suffix", suffix="x")
    for num, best_of in ((1, 2), (2, 1), (1, 21)):
        refuse(live, "best_of", n=num, best_of=best_of)


def test_l_07_a_streamed_completion(live: Live) -> None:
    with live.client() as client:
        stream = client.completions.create(
            model=MODEL,
            prompt="hi",
            max_tokens=3,
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, last = stream
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    assert "".join(chunk.choices[0].text for chunk in chunks) == "1 2 3"
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 3
    with live.http() as http:
        body = {"model": MODEL, "prompt": "hi", "stream": True}
        assert http.post("/v1/completions", json=body).text.endswith("data: [DONE]\n\n")


def test_l_08_no_prompt(live: Live) -> None:
    refuse(live, "prompt", prompt=None)


@pytest.mark.contract("M-02")
def test_m_01_the_list(live: Live) -> None:
    with live.http() as http:
        body = http.get("/v1/models").json()
    assert set(body) == {"object", "data"}
    assert body["object"] == "list"
    (model,) = body["data"]
    assert (model["id"], model["object"]) == (MODEL, "model")
    assert isinstance(model["created"], int)
    assert isinstance(model["owned_by"], str)


@pytest.mark.contract("M-05")
def test_m_03_one_model(live: Live) -> None:
    with live.http() as http:
        for name in (MODEL, MODEL.replace("/", "%2F")):
            assert http.get(f"/v1/models/{name}").json()["id"] == MODEL
        assert error_of(http.get("/v1/models/org/none"), 404)["code"] == "model_not_found"
        error_of(http.delete(f"/v1/models/{MODEL}"), 403)
