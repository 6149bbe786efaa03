"""No way in for what only the service may set: class, priority, id and the engine's own fields.

Every field that the engine knows is tried with every value that could matter, through every place
a client can write to. What the engine received is looked at, on the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batch.intake.line import parse_line, read_body
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EngineCall
from engine_adapter.client.encoding import encode
from engine_adapter.client.fields import CHAT_FIELDS, COMPLETION_FIELDS, PRIORITIES
from engine_adapter.client.rid import is_rid, new_rid
from engine_adapter.scheduling.request import RequestClass
from tests.fakes.client import FakeEngine
from tests.integration.security.conftest import MODEL, Inside, chat

# Every field of SGLang 0.5.16's chat and completion requests that we do not pass on.
PRIVATE = sorted(
    {
        "best_of", "bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt",
        "custom_labels", "custom_logit_processor", "custom_params", "data_parallel_rank",
        "disagg_prefill_dp_rank", "ebnf", "extra_key", "images_config", "input_ids", "json_schema",
        "lora_path", "max_dynamic_patch", "min_dynamic_patch", "no_stop_trim", "priority", "regex",
        "return_cached_tokens_details", "return_hidden_states", "return_meta_info",
        "return_prompt_token_ids", "return_routed_experts", "rid", "routed_dp_rank",
        "routed_experts_start_len", "session_id", "session_params", "stop_regex",
        "stream_reasoning", "task", "use_audio_in_video", "user", "embed_overrides",
        "embed_override_token_id", "extra_body", "class", "deadline_in_s", "batch", "coserve",
    }
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    0, 1, -2, 999, "ffffffffffffffffffffffffffffffff", "", True, [1], {},
    {"coserve": {"class": "online", "deadline_in_s": 0}}, "x" * 40,
)  # fmt: skip
OURS = {"rid", "priority", "n", "stream", "stream_options", "custom_params"}
OVERRIDES = (
    "x-override-priority", "x-override-rid", "x-override-routed-dp-rank", "x-smg-priority",
    "x-request-priority", "x-data-parallel-rank", "x-coserve-class",
)  # fmt: skip
FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def check_sent(body: dict[str, Any], path: str, request_class: RequestClass) -> None:
    """What reached the engine holds our values, and nothing that a client may not send."""
    fields = CHAT_FIELDS if path == CHAT_PATH else COMPLETION_FIELDS
    assert set(body) <= fields | OURS
    assert is_rid(body["rid"])
    assert body["rid"] != "f" * 32
    assert body["priority"] == PRIORITIES[request_class]
    assert body["n"] == 1
    params = body.get("custom_params")
    if request_class is RequestClass.ONLINE:
        assert params is None
    else:
        assert params is not None
        assert params["coserve"]["class"] != "online"
        assert set(params) == {"coserve"}
        assert set(params["coserve"]) <= {"class", "deadline_in_s", "batch"}


@FEW
@given(
    names=st.lists(st.sampled_from(PRIVATE), min_size=1, max_size=3, unique=True),
    value=st.sampled_from(VALUES),
    where=st.sampled_from(("body", "extra_body", "query", "header", "message", "nested")),
    tier=st.sampled_from((None, "auto", "default", "flex", "priority", "fast")),
    whole=st.booleans(),
)
@pytest.mark.contract("C-28")
async def test_nothing_private_gets_through(
    inside: Inside, names: list[str], value: Any, where: str, tier: str | None, whole: bool
) -> None:
    inside.engine.received.clear()
    path = CHAT_PATH if whole else COMPLETIONS_PATH
    body: dict[str, Any] = chat("hi") if whole else {"model": MODEL, "prompt": "hi"}
    private = dict.fromkeys(names, value)
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    match where:
        case "body":
            body |= private
        case "extra_body" | "nested":
            body["extra_body" if where == "extra_body" else "sampling_params"] = private
        case "query":
            query = {name: str(value) for name in names}
        case "header":
            headers = {name: str(value) for name in (*OVERRIDES, *(f"x-{n}" for n in names))}
        case _:
            if whole:
                body["messages"][0] |= private
    if tier is not None:
        body["service_tier"] = tier
    reply = await inside.http.post(path, json=body, headers=headers, params=query)
    expected = RequestClass.FLEX if tier == "flex" else RequestClass.ONLINE
    assert reply.status_code in (200, 400)
    if reply.status_code == 400:
        assert inside.engine.received == []
    else:
        assert len(inside.engine.received) == 1
        check_sent(inside.engine.received[0], path, expected)


@FEW
@given(
    names=st.lists(st.sampled_from(PRIVATE), min_size=1, max_size=3, unique=True),
    value=st.sampled_from(VALUES),
    outside_body=st.booleans(),
)
@pytest.mark.contract("C-28")
def test_nothing_private_gets_through_a_line_of_a_batch(
    names: list[str], value: Any, outside_body: bool
) -> None:
    private = dict.fromkeys(names, value)
    line: dict[str, Any] = {
        "custom_id": "1", "method": "POST", "url": CHAT_PATH, "body": chat("hi"),
    }  # fmt: skip
    (line if outside_body else line["body"]).update(private)
    raw = orjson.dumps(line | {"custom_id": "1"})
    parsed = parse_line(raw, line_no=1, offset=0, endpoint=CHAT_PATH)
    if parsed.faults:
        return
    call = EngineCall(
        path=CHAT_PATH,
        body=read_body(raw),
        rid=new_rid(),
        request_class=RequestClass.OFFLINE,
        timeout_s=1,
        request_id="req_1",
    )
    check_sent(orjson.loads(encode(call, stream=False)), CHAT_PATH, RequestClass.OFFLINE)


@asynccontextmanager
async def recording(heads: list[dict[str, str]]) -> AsyncIterator[str]:
    """A fake engine whose requests' headers and targets are kept."""
    from tests.fakes.server import make_app

    @web.middleware
    async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST":
            heads.append({**request.headers, "target": request.raw_path})
        return await handler(request)

    app = make_app(FakeEngine())
    app.middlewares.append(record)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_no_header_and_no_query_of_a_client_travels(inside: Inside) -> None:
    from engine_adapter.client.http import HttpEngineClient

    heads: list[dict[str, str]] = []
    async with recording(heads) as url:
        client = HttpEngineClient(url)
        member = inside.app.state.engines.members[0]
        kept, member.client = member.client, client
        try:
            refused = await inside.http.post(
                "/v1/chat/completions",
                params={"priority": "9", "rid": "f" * 32},
                json=chat("hi", model=MODEL),
            )
            reply = await inside.http.post(
                "/v1/chat/completions?api-version=2024-10-21",
                json=chat("hi", model=MODEL),
                headers=dict.fromkeys(OVERRIDES, "9") | {"x-forwarded-for": "10.0.0.1"},
            )
        finally:
            member.client = kept
            await client.close()
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")
    assert reply.status_code == 200
    (head,) = heads
    assert head.pop("target") == "/v1/chat/completions"
    assert {name.lower() for name in head} == {
        "host", "accept", "content-type", "content-length",
    }  # fmt: skip
