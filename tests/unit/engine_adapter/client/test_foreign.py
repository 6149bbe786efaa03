"""Engines that are not ours: told apart, spoken to in their dialect, dropped by closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from api.errors import ApiError, EngineUnavailable, InvalidRequest
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    RequestClass,
)
from engine_adapter.client.embedding import embed
from engine_adapter.client.engine_facts import OTHER, SGLANG, VLLM
from engine_adapter.client.foreign_facts import ForeignTerms, queue_of
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.pool import EnginePool
from engine_adapter.client.rid import new_rid
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving

KINDS = [VLLM, SGLANG, OTHER]


class Seat:
    """A client and the fake engine behind it."""

    def __init__(self, client: HttpEngineClient, engine: FakeEngine) -> None:
        self.client = client
        self.engine = engine

    @property
    def sent(self) -> dict[str, Any]:
        return self.engine.received[-1]


@asynccontextmanager
async def seated(kind: str, *, meant: bool = True, **more: Any) -> AsyncIterator[Seat]:
    engine = FakeEngine(FakeSettings(server=kind, plugin=False, context_tokens=100, **more))
    async with serving(engine) as url:
        client = HttpEngineClient(url, ForeignTerms(frozenset({url} if meant else ()), 0.5, 0.05))
        try:
            yield Seat(client, engine)
        finally:
            await client.close()


@pytest.fixture(params=KINDS)
async def seat(request: pytest.FixtureRequest) -> AsyncIterator[Seat]:
    async with seated(request.param) as one:
        yield one


def chat(prompt: str, request_class: RequestClass = RequestClass.ONLINE, **more: Any) -> EngineCall:
    body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
    timeout_s = more.pop("timeout_s", 30.0)
    return EngineCall(CHAT_PATH, {**body, **more}, new_rid(), request_class, timeout_s=timeout_s)


async def until(seat: Seat, num_running: int) -> None:
    async with asyncio.timeout(5):
        while len(seat.engine.running) != num_running:
            await asyncio.sleep(0.005)


async def test_it_is_at_level_0_and_says_why(seat: Seat) -> None:
    facts = await seat.client.facts()
    kind = seat.engine.settings.server
    assert (facts.foreign, facts.usable, facts.level, facts.server) == (True, True, 0, kind)
    assert facts.level_reasons.keys() == {1, 2, 3}
    assert all("runs without coserve's scheduler" in why for why in facts.level_reasons.values())
    assert facts.context_tokens == (0 if kind == OTHER else 100)
    assert facts.model == "fake-model"
    assert facts.targets_s == (0.5, 0.05)
    if kind == VLLM:
        assert facts.server_label == "vLLM 0.32.0"
        assert facts.queue == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_used_only_where_it_cannot_be_ours_without_its_plugin(kind: str) -> None:
    async with seated(kind, meant=False) as seat:
        pool = EnginePool([seat.client])
        await pool.probe()
        (member,) = pool.members
        assert member.up == (kind != SGLANG)
        if kind == SGLANG:
            assert "COSERVE_FOREIGN_ENGINES" in member.why


async def test_what_lists_no_model_is_no_engine() -> None:
    async with seated(OTHER, model="") as seat:
        with pytest.raises(EngineUnavailable, match="lists no model"):
            await seat.client.facts()


async def test_a_model_of_embeddings_is_told_by_its_routes() -> None:
    async with seated(VLLM, embeds=True) as seat:
        assert (await seat.client.facts()).embeds
        body = {"model": "fake-model", "input": ["one", "two"]}
        reply = await embed(
            seat.client, EngineCall(EMBEDDINGS_PATH, body, new_rid(), RequestClass.ONLINE)
        )
        assert len(reply.body["data"]) == 2
        assert seat.sent["priority"] == 0


async def test_answers_whole_and_streamed(seat: Seat) -> None:
    reply = await seat.client.call(chat("say fake:text=Paris_it_is"))
    assert reply.body["choices"][0]["message"]["content"] == "Paris it is"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 3
    body = {"model": "fake-model", "prompt": "hi", "max_tokens": 2}
    reply = await seat.client.call(
        EngineCall(COMPLETIONS_PATH, body, new_rid(), RequestClass.OFFLINE)
    )
    assert reply.body["choices"][0]["text"] == "1 2"
    stream = await seat.client.stream(chat("fake:tokens=5"))
    frames = [frame async for frame in stream]
    await stream.aclose()
    assert frames[-1].done
    events = [orjson.loads(event) for frame in frames for event in frame.events]
    assert events[-1]["usage"]["completion_tokens"] == 5
    assert not await seat.client.live_rids()


@pytest.mark.parametrize(
    ("kind", "request_class", "priority"),
    [
        (VLLM, RequestClass.ONLINE, 0),
        (VLLM, RequestClass.FLEX, 1),
        (VLLM, RequestClass.OFFLINE, 2),
        (OTHER, RequestClass.OFFLINE, None),
        (SGLANG, RequestClass.OFFLINE, None),
    ],
)
async def test_the_class_travels_as_the_priority_it_knows(
    kind: str, request_class: RequestClass, priority: int | None
) -> None:
    async with seated(kind) as seat:
        call = chat("hi", request_class)
        assert (await seat.client.call(call)).ok
        assert seat.sent.get("priority") == priority
        assert "custom_params" not in seat.sent
        id_field = {VLLM: "request_id", SGLANG: "rid"}.get(kind)
        assert seat.sent.get(id_field or "rid") == (call.rid if id_field else None)


async def test_fields_are_passed_mapped_or_refused() -> None:
    async with seated(VLLM) as seat:
        assert (await seat.client.call(chat("a", top_k=3, regex="a+", seed=1))).ok
        assert seat.sent["top_k"] == 3
        assert seat.sent["structured_outputs"] == {"regex": "a+"}
        assert "regex" not in seat.sent
        assert (await seat.client.call(chat("a", continue_final_message=True))).ok
        assert seat.sent["add_generation_prompt"] is False
    async with seated(OTHER) as seat:
        assert (await seat.client.call(chat("a", top_k=-1, separate_reasoning=True))).ok
        assert "top_k" not in seat.sent
        for field in ({"top_k": 3}, {"regex": "a+"}, {"ignore_eos": True}):
            with pytest.raises(InvalidRequest) as refused:
                await seat.client.call(chat("a", **field))
            assert refused.value.param == next(iter(field))


async def test_tools_and_forms_are_the_servers_own(seat: Seat) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    assert (await seat.client.call(chat("a", tools=[tool], response_format=form))).ok
    assert seat.sent["tools"] == [tool]
    assert seat.sent["response_format"] == form


@pytest.mark.parametrize(("status", "retryable"), [(500, True), (503, True), (404, False)])
async def test_its_errors_are_ours(seat: Seat, status: int, *, retryable: bool) -> None:
    reply = await seat.client.call(chat(f"fake:status={status}"))
    assert (reply.status_code, reply.retryable) == (status, retryable)
    assert list(reply.body["error"]) == ["message", "type", "param", "code"]
    with pytest.raises(ApiError):
        await seat.client.stream(chat(f"fake:status={status}"))


async def test_a_prompt_that_is_too_long(seat: Seat) -> None:
    reply = await seat.client.call(chat("word " * 200))
    assert (reply.status_code, reply.retryable) == (400, False)
    assert reply.body["error"]["code"] == "context_length_exceeded"


async def test_abort_takes_a_request_and_only_it(seat: Seat) -> None:
    await seat.client.facts()
    first, second = chat("fake:token_ms=5000"), chat("fake:token_ms=5000")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(seat.client.call(call)) for call in (first, second)]
        await until(seat, 2)
        assert first.rid in await seat.client.live_rids()
        assert await seat.client.abort(first.rid)
        await until(seat, 1)
        assert (await seat.client.live_rids()).running == {second.rid}
        assert await seat.client.abort(first.rid), "idempotent"
        assert await seat.client.abort(second.rid)
    assert [task.result().status_code for task in tasks] == [503, 503]
    await until(seat, 0)


async def test_whoever_goes_away_frees_the_slot(seat: Seat) -> None:
    task = asyncio.ensure_future(seat.client.call(chat("fake:token_ms=5000")))
    await until(seat, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(seat, 0)
    with pytest.raises(EngineUnavailable):
        await seat.client.call(chat("fake:token_ms=5000", timeout_s=0.1))
    await until(seat, 0)
    stream = await seat.client.stream(chat("fake:token_ms=20 fake:tokens=90"))
    async for _ in stream:
        break
    await stream.aclose()
    await stream.aclose()
    await until(seat, 0)
    assert not await seat.client.live_rids()


async def test_an_engine_that_dies_in_the_middle(seat: Seat) -> None:
    with pytest.raises(EngineUnavailable):
        await seat.client.call(chat("fake:die_after=2"))
    stream = await seat.client.stream(chat("fake:die_after=2"))
    with pytest.raises(EngineUnavailable):
        async for _ in stream:
            pass
    await stream.aclose()
    assert not await seat.client.live_rids()


async def test_its_own_queue_is_read() -> None:
    async with seated(VLLM, max_running=1) as seat:
        await seat.client.facts()
        calls = [chat("fake:token_ms=5000"), chat("fake:token_ms=5000")]
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(seat.client.call(call))
            async with asyncio.timeout(5):
                while (await seat.client.live_rids()).queue != 1:
                    await asyncio.sleep(0.01)
            for call in calls:
                await seat.client.abort(call.rid)


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        ("w 1\nr 2\n", (1, 2)),
        ('w{a="}"} 1.0\nw{a="2"} 2.0\nr{} 4 1700000000\n', (3, 4)),
        ("w 1\n", None),
        ("w NaN\nr +Inf\n", (0, 0)),
        ("w\nr x\nr_total 9\n", (0, 0)),
        ("", None),
    ],
)
def test_metrics_of_any_text(text: str, queue: tuple[int, int] | None) -> None:
    assert queue_of(text, ("w", "r")) == queue
    assert queue_of(text, None) is None


async def test_further_models_of_a_server_have_contexts_of_their_own() -> None:
    async with seated(VLLM, more_models=("nickname", "lora-sql")) as seat:
        facts = await seat.client.facts()
        assert facts.models == {"fake-model": 100, "nickname": 100, "lora-sql": 100}
        assert [facts.serves(name) for name in ("lora-sql", "other", "")] == [True, False, False]
        pool = EnginePool([seat.client])
        await pool.probe()
        assert [info.id for info in pool.models()] == list(facts.models)
        assert pool.pick("lora-sql").member.client is seat.client
        assert pool.sizes_of("nickname").context_tokens == 100


async def test_a_key_goes_to_its_engine_alone() -> None:
    engine = FakeEngine(FakeSettings(server=VLLM, plugin=False, key="sk-x"))
    async with serving(engine) as url:
        for keys, opens in (({url: "sk-x"}, True), ({url + "/x": "sk-x"}, False), ({}, False)):
            client = HttpEngineClient(url, ForeignTerms(keys=keys))
            try:
                if opens:
                    assert (await client.facts()).server == VLLM
                    assert (await client.call(chat("fake:text=yes"))).ok
                else:
                    with pytest.raises(EngineUnavailable, match="COSERVE_ENGINE_KEYS"):
                        await client.facts()
            finally:
                await client.close()
