from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EngineCall,
    EngineFacts,
    RequestClass,
)
from engine_adapter.client.encoding import encode, engine_body, wall_s
from engine_adapter.client.rid import new_rid

CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}],
    "max_tokens": 9,
    "max_completion_tokens": 5,
    "n": 3,
    "stream": True,
    "stream_options": {"include_usage": False},
    "priority": 100,
    "rid": "mine",
    "custom_params": {"coserve": {"class": "online"}},
    "temperature": None,
}


def call(body: dict[str, Any], path: str = CHAT_PATH, **more: Any) -> EngineCall:
    return EngineCall(path, body, new_rid(), more.pop("cls", RequestClass.ONLINE), **more)


def test_a_client_cannot_choose_its_class_id_or_number_of_choices() -> None:
    made = call(CHAT)
    body = engine_body(made, stream=False)
    assert (body["rid"], body["priority"], body["n"]) == (made.rid, 0, 1)
    assert "custom_params" not in body
    assert body["stream"] is False
    assert "stream_options" not in body


def test_usage_is_always_asked_for_upstream() -> None:
    options = engine_body(call(CHAT), stream=True)["stream_options"]
    assert options == {"include_usage": True, "continuous_usage_stats": True}


def test_the_newer_name_of_a_limit_wins_and_developers_are_the_system() -> None:
    body = engine_body(call(CHAT), stream=False)
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert CHAT["messages"][0]["role"] == "developer"
    assert "temperature" not in body


def test_a_row_of_a_batch_says_its_class_deadline_and_batch() -> None:
    deadline_at = datetime.fromtimestamp(wall_s() + 100, UTC)
    made = call(
        {"model": "m", "prompt": "hi"},
        COMPLETIONS_PATH,
        cls=RequestClass.OFFLINE,
        deadline_at=deadline_at,
        batch_id="batch_1",
    )
    body = orjson.loads(encode(made, stream=False))
    assert body["priority"] < 0
    detail = body["custom_params"]["coserve"]
    assert (detail["class"], detail["batch"]) == ("offline", "batch_1")
    assert 95 < detail["deadline_in_s"] <= 100


def test_a_deadline_that_has_passed_is_now() -> None:
    made = call(CHAT, cls=RequestClass.FLEX, deadline_at=datetime.fromtimestamp(1, UTC))
    assert engine_body(made, stream=False)["custom_params"]["coserve"]["deadline_in_s"] == 0.0


def test_a_seed_stays_here_where_the_engine_follows_none_and_that_is_noted() -> None:
    able, unable = EngineFacts("m", 10), EngineFacts("m", 10, seeds=False)
    for facts in (able, None):
        seeded = call({**CHAT, "seed": 7})
        assert engine_body(seeded, stream=False, facts=facts)["seed"] == 7
        assert not seeded.served.not_held
    for temperature in ({}, {"temperature": 0.5}, {"temperature": None}):
        seeded = call({**CHAT, "seed": 7, **temperature})
        assert "seed" not in engine_body(seeded, stream=False, facts=unable)
        assert seeded.served.not_held == {"seed"}
    nothing_drawn = call({**CHAT, "seed": 7, "temperature": 0})
    assert engine_body(nothing_drawn, stream=False, facts=unable)["seed"] == 7
    for held in (nothing_drawn, call(CHAT), call({**CHAT, "seed": None})):
        engine_body(held, stream=False, facts=unable)
        assert not held.served.not_held
