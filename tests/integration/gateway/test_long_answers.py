"""What a tenant sends or stored is not read on the loop that all streams share, unless it is brief.

One item may have as many parts as a body may have objects: some 30 ms in one call.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from gateway.http.parsing import BRIEF_BYTES
from tests.integration.gateway.conftest import MODEL, Online

NUM_PARTS = 40_000
PART = {"type": "input_text", "text": "a"}


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """Calls in this thread, the gateway's loop, by name; those of C have a C before it."""
    found = Counter[str]()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found[frame.f_code.co_name] += 1
        elif event == "c_call":
            found[f"C {argument.__name__}"] += 1

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def _stored(online: Online, **more: Any) -> dict[str, Any]:
    body = {
        "model": MODEL,
        "input": [{"role": "user", "content": [PART] * NUM_PARTS}],
        "max_output_tokens": 1,
        **more,
    }
    async with online.http() as http:
        reply = await http.post("/v1/responses", content=orjson.dumps(body))
    assert reply.status_code == 200, reply.text
    made: dict[str, Any] = reply.json()
    return made


async def test_input_items(online: Online) -> None:
    path = f"/v1/responses/{(await _stored(online))['id']}/input_items"
    async with online.http() as http:
        with calls() as found:
            reply = await http.get(path)
    assert found["C loads"] == 0
    (item,) = reply.json()["data"]
    assert len(item["content"]) == NUM_PARTS


async def test_items_of_a_conversation(online: Online) -> None:
    async with online.http() as http:
        path = f"/v1/conversations/{(await http.post('/v1/conversations')).json()['id']}"
        await _stored(online, conversation=path.rpartition("/")[2])
        with calls() as found:
            reply = await http.get(f"{path}/items?order=asc&limit=1")
        assert found["C loads"] == 0
        page = reply.json()
        assert page["first_id"] == page["last_id"] == page["data"][0]["id"]
        with calls() as found:
            one = await http.get(f"{path}/items/{page['first_id']}")
        assert found["C loads"] == 0
        assert one.json() == page["data"][0]


async def test_parts_of_one_item(online: Online) -> None:
    with calls() as found:
        await _stored(online)
    assert found["check_response"] == found["_whole_part"] == found["weigh"] == 0


async def test_tools_of_a_short_body(online: Online) -> None:
    """Sixty kilobytes of schemas are 30 ms of work, which many may send at once."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10)}}
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "parameters": schema}}
        for n in range(128)
    ]
    async with online.http() as http:
        for count, aside in ((128, True), (1, False)):
            body = online.chat("fake:text=yes", tools=tools[:count])
            assert (len(orjson.dumps(body)) > BRIEF_BYTES) == aside
            with calls() as found:
                reply = await http.post("/v1/chat/completions", content=orjson.dumps(body))
            assert reply.json()["choices"][0]["message"]["content"] == "yes"
            work = {name: found[name] > 0 for name in ("check_chat", "weigh", "engine_body")}
            assert set(work.values()) == {not aside}


NUM_TOKENS = 2000


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/responses"], ids=["chat", "response"]
)
@pytest.mark.parametrize("is_long", [True, False], ids=["long", "short"])
async def test_an_answer_with_log_probabilities(online: Online, path: str, is_long: bool) -> None:
    """Eight thousand tokens with 20 alternatives each held the loop for more than a second."""
    order = f"fake:tokens={NUM_TOKENS if is_long else 2}"
    body = online.chat(order, logprobs=True, top_logprobs=20)
    if path.endswith("responses"):
        body = {"model": MODEL, "input": order, "top_logprobs": 20}
    async with online.http() as http:
        with calls() as found:
            reply = await http.post(path, content=orjson.dumps(body))
    assert reply.status_code == 200, reply.text
    work = {name: found[name] > 0 for name in ("decode_reply", "chat_logprobs", "_bounded")}
    assert set(work.values()) == {not is_long}
    made = reply.json()
    if path.endswith("responses"):
        tokens = made["output"][0]["content"][0]["logprobs"]
        assert found["_row"] == (not is_long)
    else:
        tokens = made["choices"][0]["logprobs"]["content"]
    assert len(tokens) == (NUM_TOKENS if is_long else 2)
    assert all(len(token["top_logprobs"]) == 20 for token in tokens)


@pytest.mark.parametrize("is_long", [True, False], ids=["long", "short"])
async def test_a_stream_of_long_events(online: Online, is_long: bool) -> None:
    """An echoed prompt with log probabilities is one event."""
    width = 100_000 if is_long else 10
    body = {"model": MODEL, "input": f"fake:tokens=3 fake:width={width}", "stream": True}
    async with online.http() as http:
        with calls() as found:
            reply = await http.post("/v1/responses", content=orjson.dumps(body))
    assert reply.status_code == 200, reply.text
    assert reply.text.count("event: response.completed") == 1
    assert len(reply.content) > 3 * width
    assert (found["text"] == 0) == is_long
