"""A gateway before several engines: routing by model, ejection and return, the registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest

from api.engine_errors import ENGINE_LOST
from gateway.settings import GatewaySettings
from store.repositories import engine as engines
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.engine_process import EngineProcess, engine_process
from tests.fixtures.online import Gateway, running_gateway

SHARED, OTHER = "shared-model", "other-model"
LIMIT_S = 8.0


@dataclass(frozen=True)
class Fleet:
    """A gateway and the engines behind it: two of one model, one of another."""

    gateway: Gateway
    mortal: EngineProcess
    twin: FakeEngine
    other: FakeEngine


@pytest.fixture
async def fleet(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    twin, other = (FakeEngine(FakeSettings(model=name)) for name in (SHARED, OTHER))
    async with (
        engine_process(SHARED) as mortal,
        serving(twin) as twin_url,
        serving(other) as other_url,
    ):
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=f"{mortal.url},{twin_url},{other_url}",
            model_aliases=f"usual={OTHER}|{SHARED}, fixed={OTHER}",
            home=tmp_path,
        )
        async with running_gateway(database, settings, SHARED) as gateway:
            await until_up(gateway, 3)
            yield Fleet(gateway, mortal, twin, other)


async def until_up(gateway: Gateway, num: int, limit_s: float = LIMIT_S) -> None:
    async with asyncio.timeout(limit_s):
        while sum(member.open for member in gateway.app.state.engines.members) != num:
            await asyncio.sleep(0.02)


async def ask(gateway: Gateway, model: str) -> str:
    async with gateway.client() as client:
        answer = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "hello"}]
        )
    return answer.model


async def streamed(http: httpx.AsyncClient, body: Any, begun: asyncio.Semaphore) -> bytes:
    """All that a stream gets; its first text is told of."""
    received, told = b"", False
    async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200
        async for data in reply.aiter_bytes():
            received += data
            if not told and b'"content":" ' in received:
                begun.release()
                told = True
    return received


async def test_requests_go_where_their_model_is(fleet: Fleet) -> None:
    async with fleet.gateway.client() as client:
        listed = {one.id async for one in client.models.list()}
    assert listed == {SHARED, OTHER, "usual", "fixed"}
    assert await ask(fleet.gateway, OTHER) == OTHER
    assert len(fleet.other.received) == 1
    assert await ask(fleet.gateway, SHARED) == SHARED
    assert len(fleet.other.received) == 1
    with pytest.raises(openai.NotFoundError):
        await ask(fleet.gateway, "no-such-model")


async def test_open_requests_spread_over_the_engines_of_a_model(fleet: Fleet) -> None:
    slow = fleet.gateway.chat("fake:tokens=3 fake:token_ms=300")
    async with fleet.gateway.http() as http:
        answers = await asyncio.gather(
            *(http.post("/v1/chat/completions", json=slow) for _ in range(12))
        )
    assert {one.status_code for one in answers} == {200}
    assert 4 <= len(fleet.twin.received) <= 8


async def test_a_dead_engine_is_left_out_and_comes_back(fleet: Fleet) -> None:
    await fleet.mortal.kill()
    # The call that finds it gone goes to its twin: nobody notices.
    for stream in (False, True):
        fleet.gateway.app.state.engines.members[0].up = True
        body = fleet.gateway.chat("hello", stream=stream)
        async with fleet.gateway.http() as http:
            answers = [await http.post("/v1/chat/completions", json=body) for _ in range(5)]
        assert [one.status_code for one in answers] == [200] * 5, [one.text for one in answers]
        assert b"error" not in answers[0].content
        await until_up(fleet.gateway, 2)
    num_before = len(fleet.twin.received)
    await fleet.mortal.start()
    await until_up(fleet.gateway, 3)
    slow = fleet.gateway.chat("fake:tokens=3 fake:token_ms=300")
    async with fleet.gateway.http() as http:
        answers = await asyncio.gather(
            *(http.post("/v1/chat/completions", json=slow) for _ in range(8))
        )
    assert [one.status_code for one in answers] == [200] * 8, [one.text for one in answers]
    assert 2 <= len(fleet.twin.received) - num_before <= 6, "it gets its half again"


@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_never_reached_its_engine_goes_elsewhere(
    fleet: Fleet, stream: bool, num_choices: int
) -> None:
    await fleet.mortal.kill()
    mortal, twin = fleet.gateway.app.state.engines.members[:2]
    async with fleet.gateway.http() as http:
        while not mortal.ejected.is_set() or mortal.open:
            await asyncio.sleep(0.01)
        for number in range(20):  # some of them are drawn to the dead one
            mortal.up = True
            body = fleet.gateway.chat(f"{number}", stream=stream, n=num_choices)
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            assert b'"error"' not in answer.content
    assert len(fleet.twin.received) == 20 * num_choices
    assert twin.open


async def test_an_engine_killed_in_the_middle_of_streams_ends_them_with_an_error_event(
    fleet: Fleet,
) -> None:
    body = fleet.gateway.chat("fake:tokens=40 fake:token_ms=100", stream=True)
    async with fleet.gateway.http() as http, asyncio.TaskGroup() as group:
        begun = asyncio.Semaphore(0)
        streams = [group.create_task(streamed(http, body, begun)) for _ in range(12)]
        for _ in streams:
            await begun.acquire()
        await fleet.mortal.kill()
        answers = [await one for one in streams]
        lost = [one for one in answers if not one.endswith(b"data: [DONE]\n\n")]
        assert 1 <= len(lost) <= 11, "the other engine's streams go on"
        for one in lost:
            last = orjson.loads(one.strip().rpartition(b"data: ")[2])
            assert last["error"]["message"] == ENGINE_LOST
            assert one.count(b'"content":" ') >= 1
        assert all(b"error" not in one for one in answers if one not in lost)
        retried = [group.create_task(streamed(http, body, begun)) for _ in lost]
        assert all([(await one).endswith(b"data: [DONE]\n\n") for one in retried])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_lost_before_its_first_token_is_tried_once_elsewhere(
    fleet: Fleet, stream: bool
) -> None:
    # Both engines die of it: with the second one it is known as a request that may do so.
    members = fleet.gateway.app.state.engines.members
    body = fleet.gateway.chat("fake:die_after=0", stream=stream)
    async with fleet.gateway.http() as http:
        answer = await http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "engine_failure")
    assert len(fleet.twin.received) == 1
    assert members[2].up, "an engine of another model is not asked"


async def test_a_request_of_which_a_token_came_is_not_tried_again(fleet: Fleet) -> None:
    order = "fake:tokens=9 fake:token_ms=20 fake:die_after=3"
    async with fleet.gateway.http() as http:
        body = fleet.gateway.chat(order, stream=True)
        answer = await http.post("/v1/chat/completions", json=body)
        assert b'"engine_unavailable"' in answer.content
        assert sum(not one.open for one in fleet.gateway.app.state.engines.members[:2]) <= 1


async def test_an_alias_stands_for_its_fallback_while_the_model_is_away(fleet: Fleet) -> None:
    assert await ask(fleet.gateway, "usual") == OTHER
    fleet.gateway.app.state.engines.members[2].draining = True
    assert await ask(fleet.gateway, "usual") == SHARED
    with pytest.raises(openai.InternalServerError):
        await ask(fleet.gateway, "fixed")


async def test_the_registry_is_followed_without_a_restart(fleet: Fleet, database: Database) -> None:
    gateway, third = fleet.gateway, FakeEngine(FakeSettings(model="third-model"))
    async with serving(third) as url:
        async with database.unit_of_work() as session:
            await engines.add(session, url)
        await until_up(gateway, 4)
        assert await ask(gateway, "third-model") == "third-model"

        body = gateway.chat("fake:tokens=20 fake:token_ms=100", stream=True)
        async with (
            gateway.http() as http,
            http.stream(
                "POST", "/v1/chat/completions", json=body | {"model": third.settings.model}
            ) as stream,
        ):
            received = stream.aiter_bytes()
            first = await anext(received)
            async with database.unit_of_work() as session:
                assert await engines.drain(session, url)
            await until_up(gateway, 3)
            with pytest.raises(openai.InternalServerError):
                await ask(gateway, "third-model")
            async with database.unit_of_work() as session:
                assert await engines.remove(session, url)
            whole = first + b"".join([data async for data in received])
        assert whole.endswith(b"data: [DONE]\n\n"), "an open stream outlives drain and removal"
        async with asyncio.timeout(LIMIT_S):
            while "third-model" in {one.id for one in gateway.app.state.engines.models()}:
                await asyncio.sleep(0.05)
        with pytest.raises(openai.NotFoundError):
            await ask(gateway, "third-model")
