from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from api.errors import EngineUnavailable, ModelNotFound, Overloaded
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RequestClass,
)
from engine_adapter.client.choices import single_choice_bodies
from engine_adapter.client.fake import FakeEngine, FakeEngineClient, FakeSettings
from engine_adapter.client.pool import EnginePool
from gateway.auth.principal import Principal
from gateway.observability.metrics import Metrics
from gateway.prompts.admission import Admission, Admitted, class_of_tier

MINE = Principal("proj_mine", "key_1")
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def admission() -> Admission:
    pool = EnginePool([FakeEngineClient(FakeEngine(FakeSettings(model="m")))])
    await pool.probe()
    return Admission(pool, Metrics(), max_in_flight=4)


def admit(admission: Admission, body: dict[str, Any], path: str = CHAT_PATH) -> Admitted:
    return admission.admit(path, body, request_id="req_1", timeout_s=9.0, principal=MINE)


def test_one_call_per_choice_each_with_its_own_id(admission: Admission) -> None:
    admitted = admit(admission, {**CHAT, "n": 3})
    assert [choice.index for choice in admitted.choices] == [0, 1, 2]
    assert [choice.counts_prompt for choice in admitted.choices] == [True, False, False]
    assert len({choice.call.rid for choice in admitted.choices}) == 3
    assert {choice.call.request_class for choice in admitted.choices} == {RequestClass.ONLINE}


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


async def test_there_is_room_for_so_many_calls(admission: Admission) -> None:
    admit(admission, {**CHAT, "n": 4})
    with pytest.raises(Overloaded):
        admit(admission, {**CHAT, "n": 5})
    with admission.room(admit(admission, {**CHAT, "n": 3})):
        admit(admission, CHAT)
        with pytest.raises(Overloaded) as refused:
            admit(admission, {**CHAT, "n": 2})
        assert refused.value.headers["retry-after"]
    admit(admission, {**CHAT, "n": 4})


async def test_drained_when_the_last_call_has_ended(admission: Admission) -> None:
    assert await admission.drained(0.01)
    with admission.room(admit(admission, {**CHAT, "n": 2})):
        assert not await admission.drained(0.01)
    assert await admission.drained(0.01)


async def test_unknown_models_and_lost_engines() -> None:
    client = FakeEngineClient(FakeEngine(FakeSettings(model="m")))
    pool = EnginePool([client])
    admission = Admission(pool, Metrics(), max_in_flight=4)
    with pytest.raises(EngineUnavailable):
        admit(admission, CHAT)
    await pool.probe()
    with pytest.raises(ModelNotFound):
        admit(admission, {**CHAT, "model": "gpt"})
    client.engine.down = True
    await pool.probe()
    with pytest.raises(EngineUnavailable):
        admit(admission, CHAT)


async def test_one_project_leaves_room_for_another() -> None:
    pool = EnginePool([FakeEngineClient(FakeEngine(FakeSettings(model="m")))])
    await pool.probe()
    admission = Admission(pool, Metrics(), max_in_flight=64)
    other = Principal("proj_other", "key_2")
    more: dict[str, Any] = {"request_id": "req_1", "timeout_s": 9.0}
    with ExitStack() as held:
        for _ in range(32):
            held.enter_context(admission.room(admit(admission, CHAT)))
        with pytest.raises(Overloaded):
            admit(admission, CHAT)
        admitted = admission.admit(CHAT_PATH, CHAT, principal=other, **more)
        held.enter_context(admission.room(admitted))


async def test_many_embeddings_are_many_places() -> None:
    pool = EnginePool([FakeEngineClient(FakeEngine(FakeSettings(model="m", embeds=True)))])
    await pool.probe()
    admission = Admission(pool, Metrics(), max_in_flight=4)
    for inputs, places in (("one", 1), (["a"] * 16, 1), (["a"] * 17, 2), ([1, 2, 3], 1)):
        body = {"model": "m", "input": inputs}
        assert admit(admission, body, EMBEDDINGS_PATH).num_places == places
    with pytest.raises(Overloaded):
        admit(admission, {"model": "m", "input": ["a"] * 65}, EMBEDDINGS_PATH)
