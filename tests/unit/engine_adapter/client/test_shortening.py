from __future__ import annotations

from typing import Any

import pytest

from api.engine_errors import share_that_fits
from api.errors import ContextLengthExceeded
from engine_adapter.client.base import CHAT_PATH, EngineCall, RequestClass
from engine_adapter.client.rid import new_rid
from engine_adapter.client.shortening import answered, shortened, streamed
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

LIMIT = 100
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def said(role: str, text: str, num_words: int = 1) -> dict[str, Any]:
    return {"role": role, "content": " ".join([text] * num_words)}


def step(num_words: int) -> list[dict[str, Any]]:
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return [turn, {**said("tool", "out", num_words), "tool_call_id": "c"}]


def call_of(messages: list[dict[str, Any]], *, truncates: bool = True, **more: Any) -> EngineCall:
    body = {"model": "fake-model", "messages": messages, **more}
    return EngineCall(CHAT_PATH, body, new_rid(), RequestClass.ONLINE, truncates=truncates)


def client() -> FakeEngineClient:
    return FakeEngineClient(FakeEngine(FakeSettings(context_tokens=LIMIT)))


TALK = [
    SYSTEM,
    said("user", "one", 60),
    said("assistant", "first", 30),
    said("user", "two", 20),
    said("assistant", "second", 20),
    said("user", "three", 10),
]


async def sent(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the engine was sent in the end, whole and streamed."""
    whole, piecewise = client(), client()
    assert (await answered(whole, call_of(messages))).ok
    stream = await streamed(piecewise, call_of(messages))
    await stream.aclose()
    found: list[dict[str, Any]] = whole.engine.received[-1]["messages"]
    assert found == piecewise.engine.received[-1]["messages"]
    return found


async def test_the_oldest_turns_go_and_the_systems_words_stay() -> None:
    assert await sent(TALK) == [SYSTEM, *TALK[3:]]


async def test_what_fits_is_sent_as_it_is() -> None:
    short = [SYSTEM, said("user", "one", 5), said("assistant", "a"), said("user", "two")]
    one = client()
    assert (await answered(one, call_of(short))).ok
    (body,) = one.engine.received
    assert body["messages"] == short


async def test_a_call_of_a_tool_goes_with_its_output() -> None:
    question = said("user", "go")
    messages = [SYSTEM, question, *step(70), *step(60), *step(10)]
    kept = await sent(messages)
    # The engine of these tests has no tools: calls and outputs reach it as words.
    assert [message["role"] for message in kept] == ["system", "user", "assistant", "user"]
    assert kept[1] == question


@pytest.mark.parametrize("truncates", [True, False])
async def test_one_turn_that_is_too_long_is_refused(truncates: bool) -> None:
    alone = call_of([SYSTEM, said("user", "word", 200)], truncates=truncates)
    one = client()
    reply = await answered(one, alone)
    assert reply.body["error"]["code"] == "context_length_exceeded"
    assert len(one.engine.received) == 1
    with pytest.raises(ContextLengthExceeded):
        await streamed(one, alone)


async def test_nothing_is_dropped_unless_it_is_wanted() -> None:
    one = client()
    assert not (await answered(one, call_of(TALK, truncates=False))).ok
    with pytest.raises(ContextLengthExceeded):
        await streamed(one, call_of(TALK, truncates=False))
    assert all(len(body["messages"]) == len(TALK) for body in one.engine.received)


async def test_another_error_is_told_as_it_is() -> None:
    messages = [*TALK[3:5], said("user", "fake:status=400")]
    reply = await answered(client(), call_of(messages))
    assert reply.status_code == 400
    assert reply.body["error"]["code"] != "context_length_exceeded"


def test_an_answer_that_leaves_no_room_drops_nothing() -> None:
    refusal = (
        "This model's maximum context length is 100 tokens. However, you requested 320 tokens "
        "(120 in the prompt, 200 in the completion)."
    )
    assert share_that_fits(refusal) < 0
    assert shortened(call_of(TALK), refusal) is None


def test_each_try_is_shorter_whatever_the_numbers_say() -> None:
    call, refusal = call_of(TALK), "However, 100 tokens, your prompt 100 tokens."
    lengths = []
    while (shorter := shortened(call, refusal)) is not None:
        call = shorter
        lengths.append(len(call.body["messages"]))
    assert lengths == [4, 2]
    assert call.body["messages"] == [SYSTEM, TALK[-1]]


@pytest.mark.parametrize(
    ("message", "share"),
    [
        ("100 tokens. However, you requested 180 tokens (160 in the prompt, 20 in", 0.5),
        ("100 tokens. However, your prompt resulted in 150 tokens.", 0.5),
        ("The prompt is longer than the model's context.", 0.5),
    ],
)
def test_how_much_fits(message: str, share: float) -> None:
    assert share_that_fits(message) == pytest.approx(share)
