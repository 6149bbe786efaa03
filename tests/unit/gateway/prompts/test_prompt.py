from __future__ import annotations

from typing import Any

import pytest

from api.errors import EngineUnavailable, ModelNotFound
from api.numbers import UNKNOWN
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RequestClass,
)
from engine_adapter.client.choices import single_choice_bodies
from engine_adapter.client.estimate import weigh
from engine_adapter.client.pool import EnginePool
from gateway.auth.principal import Principal
from gateway.prompts.prompt import Prompt, class_of_tier, prompt_of
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

MINE = Principal("proj_mine", "key_1")
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def engines() -> EnginePool:
    pool = EnginePool([FakeEngineClient(FakeEngine(FakeSettings(model="m")))])
    await pool.probe()
    return pool


def made(engines: EnginePool, body: dict[str, Any], path: str = CHAT_PATH) -> Prompt:
    return prompt_of(
        engines,
        weigh(path, body, UNKNOWN, is_large=False, is_routed=engines.routes_by_prompt),
        MINE,
        request_id="req_1",
        timeout_s=9.0,
    )


def test_one_call_per_choice_each_with_its_own_id(engines: EnginePool) -> None:
    prompt = made(engines, {**CHAT, "n": 3})
    assert [choice.index for choice in prompt.choices] == [0, 1, 2]
    assert [choice.counts_prompt for choice in prompt.choices] == [True, False, False]
    assert len({choice.call.rid for choice in prompt.choices}) == 3
    assert len({id(choice.call.served) for choice in prompt.choices}) == 3
    assert {choice.call.request_class for choice in prompt.choices} == {RequestClass.ONLINE}


def test_prompts_times_choices_in_the_order_of_the_contract() -> None:
    body = {"model": "m", "prompt": ["a", "b"], "n": 2, "seed": 5}
    bodies = single_choice_bodies(COMPLETIONS_PATH, body)
    assert [(made["prompt"], made["seed"], counts) for made, counts in bodies] == [
        ("a", 5, True), ("a", 6, False), ("b", 5, True), ("b", 6, False),
    ]  # fmt: skip
    assert {made["max_tokens"] for made, _ in bodies} == {16}


def test_the_largest_seed_has_room_for_more_choices() -> None:
    top = (1 << 63) - 1
    bodies = single_choice_bodies(CHAT_PATH, {**CHAT, "n": 3, "seed": top})
    seeds = [body["seed"] for body, _ in bodies]
    assert len(set(seeds)) == 3
    assert max(seeds) == top


@pytest.mark.parametrize(
    ("tier", "request_class", "answered"),
    [
        (None, RequestClass.ONLINE, None),
        ("auto", RequestClass.ONLINE, "default"),
        ("default", RequestClass.ONLINE, "default"),
        ("priority", RequestClass.ONLINE, "default"),
        ("flex", RequestClass.FLEX, "flex"),
    ],
)
def test_classes_by_tier(
    tier: str | None, request_class: RequestClass, answered: str | None
) -> None:
    assert class_of_tier(tier) == (request_class, answered)


async def test_unknown_models_and_lost_engines() -> None:
    client = FakeEngineClient(FakeEngine(FakeSettings(model="m")))
    pool = EnginePool([client])
    with pytest.raises(EngineUnavailable):
        made(pool, CHAT)
    await pool.probe()
    with pytest.raises(ModelNotFound):
        made(pool, {**CHAT, "model": "gpt"})
    client.engine.down = True
    await pool.probe()
    with pytest.raises(EngineUnavailable):
        made(pool, CHAT)


async def test_many_embeddings_are_many_places() -> None:
    pool = EnginePool([FakeEngineClient(FakeEngine(FakeSettings(model="m", embeds=True)))])
    await pool.probe()
    for inputs, places in (("one", 1), (["a"] * 16, 1), (["a"] * 17, 2), ([1, 2, 3], 1)):
        body = {"model": "m", "input": inputs}
        assert made(pool, body, EMBEDDINGS_PATH).num_places == places
