"""Chat completions that are not streamed, with the official client."""

from __future__ import annotations

import asyncio
from typing import Literal

import openai
import pytest

from engine_adapter.client.choices import ONLINE_AT_ONCE
from tests.integration.gateway.conftest import MODEL, Online


async def test_an_answer_has_what_the_contract_says(online: Online) -> None:
    async with online.client() as client:
        reply = await client.chat.completions.with_raw_response.create(
            **online.chat("What is the capital of France? fake:text=Paris_it_is.")
        )
    answer = reply.parse()
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.content == "Paris it is."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.service_tier is None
    headers = reply.headers
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"].startswith("req_")
    assert headers["openai-version"] == "2020-10-01"
    assert int(headers["openai-processing-ms"]) >= 0


async def test_several_choices_are_several_single_calls(online: Online) -> None:
    async with online.client() as client:
        answer = await client.chat.completions.create(**online.chat("fake:tokens=3"), n=3, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 9)
    sent = online.engine.received
    assert [body["n"] for body in sent] == [1, 1, 1]
    assert {len(body["rid"]) for body in sent} == {32}
    assert sorted(body["seed"] for body in sent) == [7, 8, 9]


@pytest.mark.contract("C-28")
async def test_the_client_cannot_choose_class_or_id(online: Online) -> None:
    async with online.client() as client:
        await client.chat.completions.create(
            **online.chat("hi"),
            extra_headers={
                "x-override-priority": "1000",
                "x-override-rid": "mine",
                "x-data-parallel-rank": "3",
                "x-smg-routing-key": "k",
            },
        )
    (sent,) = online.engine.received
    assert sent["priority"] == 0
    assert sent["rid"] != "mine"


@pytest.mark.parametrize(
    "knob", ["custom_logit_processor", "lora_path", "custom_params", "priority", "rid", "new"]
)
async def test_what_would_change_the_answer_is_refused(online: Online, knob: str) -> None:
    async with online.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(**online.chat("hi"), extra_body={knob: {"a": 1}})
    assert refused.value.param == knob
    assert online.engine.received == []


async def test_the_tier_that_served_it_is_named(online: Online) -> None:
    asked: tuple[tuple[Literal["flex", "auto", "priority"], str], ...] = (
        ("flex", "flex"), ("auto", "default"), ("priority", "default"),
    )  # fmt: skip
    async with online.client() as client:
        for tier, served in asked:
            answer = await client.chat.completions.create(**online.chat("hi"), service_tier=tier)
            assert answer.service_tier == served
    assert [body["priority"] for body in online.engine.received] == [-1, 0, 0]


@pytest.mark.contract("C-32")
async def test_concurrent_requests_do_not_mix(online: Online) -> None:
    async with online.client() as client, asyncio.TaskGroup() as group:
        tasks = {
            f"answer-{i}": group.create_task(
                client.chat.completions.create(**online.chat(f"fake:text=answer-{i}"))
            )
            for i in range(32)
        }
    for text, task in tasks.items():
        assert task.result().choices[0].message.content == text


@pytest.mark.contract("C-31")
async def test_a_client_that_goes_away_frees_its_slot(online: Online) -> None:
    async with online.client() as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(
                **online.chat("fake:token_ms=60000"), n=2, timeout=0.3
            )
        await online.until_engine_is_free()


async def test_one_failed_choice_ends_the_others(online: Online) -> None:
    async with online.client() as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(**online.chat("fake:finish=abort"), n=3)
    assert failed.value.status_code == 503
    await online.until_engine_is_free()


@pytest.mark.parametrize("stream", [False, True])
async def test_many_choices_leave_room_for_others(online: Online, *, stream: bool) -> None:
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(online.engine.running) + len(online.engine.waiting))
            await asyncio.sleep(0.001)

    watching = asyncio.ensure_future(watch())
    body = online.chat("fake:tokens=2 fake:token_ms=5", n=100, stream=stream)
    async with online.http() as http:
        reply = await http.post("/v1/chat/completions", json=body)
    watching.cancel()
    assert reply.status_code == 200
    assert reply.text.count('"finish_reason":"stop"') == 100
    assert 1 < most <= ONLINE_AT_ONCE


async def test_completions_prompts_times_choices(online: Online) -> None:
    async with online.client() as client:
        answer = await client.completions.create(model=MODEL, prompt=["a b", "c"], n=2)
        assert answer.id.startswith("cmpl-")
        assert answer.object == "text_completion"
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert {choice.finish_reason for choice in answer.choices} == {"length"}
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 64)
        tokens = await client.completions.create(model=MODEL, prompt=[[1, 2, 3], [4]], max_tokens=1)
        assert [choice.text for choice in tokens.choices] == ["1", "1"]


async def test_many_calls_on_one_connection(online: Online) -> None:
    async with online.http() as http:
        for _ in range(100):
            reply = await http.post("/v1/chat/completions", json=online.chat("fake:tokens=1"))
            assert reply.status_code == 200
        assert len(online.server.server_state.connections) == 1
