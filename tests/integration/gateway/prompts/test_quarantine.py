"""Requests that were at engines when these were lost, and those that were only beside them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from sqlalchemy import text

from batch.run.quarantine import MAX_LOSSES
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH
from engine_adapter.client.encoding import digest_of
from gateway.prompts.quarantine import HOLD_S, Quarantine
from gateway.settings import GatewaySettings
from store.repositories import suspect as suspects
from store.repositories.suspect import Loss
from store.session import Database
from tests.fixtures.online import Gateway, running_gateway
from tests.integration.gateway.conftest import MODEL, Online

KILLER = "fake:die_after=0"
MID_ANSWER = "fake:tokens=4 fake:token_ms=1 fake:die_after=2"


async def until_up(gateway: Gateway) -> None:
    async with asyncio.timeout(8):
        while not all(one.open for one in gateway.app.state.engines.members):
            await asyncio.sleep(0.01)


async def asked(gateway: Gateway, path: str, body: dict[str, Any]) -> httpx.Response:
    await until_up(gateway)
    async with gateway.http() as http:
        return await http.post(path, json=body)


async def lost_before(database: Database, body: dict[str, Any], num: int, ago_s: float) -> None:
    """Have a request be at `num` losses of engines, so long ago."""
    digest = digest_of(CHAT_PATH, body)
    async with database.unit_of_work() as session:
        for place in range(num):
            loss = Loss(digest, f"http://engine-{place}", ago_s, ago_s)
            await suspects.note(session, [loss])


def quarantine(gateway: Gateway) -> Quarantine:
    found = gateway.app.state.prompt_parts.quarantine
    assert isinstance(found, Quarantine)
    return found


@pytest.mark.parametrize("prompt", [KILLER, MID_ANSWER])
@pytest.mark.parametrize(
    "more", [{}, {"stream": True}, {"n": 2}, {"service_tier": "flex"}, {"seed": 4, "n": 2}]
)
async def test_what_two_engines_were_lost_with_meets_no_third(
    online: Online, prompt: str, more: dict[str, Any]
) -> None:
    body = online.chat(prompt, **more)
    first = await asked(online, CHAT_PATH, body)
    assert b"engine_unavailable" in first.content
    second = await asked(online, CHAT_PATH, body)
    assert b"engine_failure" in second.content
    num_received = len(online.engine.received)
    for equal in (body, {**body, "user": "another", "metadata": {"try": "3"}}):
        third = await asked(online, CHAT_PATH, equal)
        assert third.status_code == 422
        assert third.json()["error"]["code"] == "engine_failure"
        assert third.headers["x-should-retry"] == "false"
    assert len(online.engine.received) == num_received
    assert (await asked(online, CHAT_PATH, online.chat("hi"))).status_code == 200


async def test_what_was_given_up_as_a_row_is_not_tried_online(
    online: Online, database: Database
) -> None:
    body = online.chat("hi")
    async with database.unit_of_work() as session:
        await suspects.condemn(session, [digest_of(CHAT_PATH, body)], num_losses=MAX_LOSSES)
    await quarantine(online).poll()
    num_received = len(online.engine.received)
    refused = await asked(online, CHAT_PATH, {**body, "user": "another"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "engine_failure")
    assert len(online.engine.received) == num_received


async def test_it_is_known_by_what_the_engine_sees(online: Online) -> None:
    body = {"model": MODEL, "prompt": [KILLER, "hi"]}
    await asked(online, COMPLETIONS_PATH, body)
    await asked(online, COMPLETIONS_PATH, body)
    alone = {"model": MODEL, "prompt": KILLER, "stream": True}
    assert (await asked(online, COMPLETIONS_PATH, alone)).status_code == 422
    as_response = {"model": MODEL, "input": KILLER, "store": False}
    for status in (503, 422, 422):
        assert (await asked(online, "/v1/responses", as_response)).status_code == status


async def test_the_official_client_does_not_repeat_it(online: Online, database: Database) -> None:
    body = online.chat("hi")
    await lost_before(database, body, 2, ago_s=0)
    await quarantine(online).poll()
    async with online.client(max_retries=2) as client:
        with pytest.raises(openai.UnprocessableEntityError, match="not tried again"):
            await client.chat.completions.create(**body)
        with pytest.raises(openai.UnprocessableEntityError, match="not tried again"):
            await client.chat.completions.create(**body, stream=True)
    assert online.engine.received == []


async def test_equal_requests_at_one_loss_count_once(online: Online, database: Database) -> None:
    body = online.chat("fake:tokens=3 fake:token_ms=50 fake:die_after=1")
    async with online.http() as http:
        posts = [http.post(CHAT_PATH, json=body) for _ in range(8)]
        answers = await asyncio.gather(*posts)
    assert [one.status_code for one in answers] == [503] * 8
    async with database.unit_of_work() as session:
        assert [one.num_losses for one in await suspects.known(session)] == [1]


async def test_every_gateway_knows_also_after_a_restart(
    online: Online, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    body = online.chat(KILLER)
    await asked(online, CHAT_PATH, body)
    settings = GatewaySettings(
        database_url=database_url,
        broker_url=broker_url,
        engine_urls=online.app.state.engines.members[0].url,
        home=tmp_path,
    )
    for _ in range(2):
        async with running_gateway(database, settings, MODEL) as other:
            await quarantine(other).poll()
            assert (await asked(other, CHAT_PATH, body)).status_code == 422
    assert len(online.engine.received) == 2
    await quarantine(online).poll()
    assert (await asked(online, CHAT_PATH, body)).status_code == 422
    assert len(online.engine.received) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_an_innocent_runs_again_and_an_answer_ends_the_suspicion(
    online: Online, database: Database, stream: bool
) -> None:
    body = online.chat("innocent", stream=stream)
    await lost_before(database, body, 2, ago_s=HOLD_S / 2)
    await quarantine(online).poll()
    refused = await asked(online, CHAT_PATH, body)
    assert refused.status_code == 422
    assert 0 < int(refused.headers["retry-after"]) <= HOLD_S / 2
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE suspects SET lost_at = lost_at - interval '30 s'"))
    await quarantine(online).poll()
    for _ in range(2):
        answered = await asked(online, CHAT_PATH, body)
        assert answered.status_code == 200
    async with database.unit_of_work() as session:
        assert await suspects.known(session) == []


async def test_what_is_lost_in_its_trial_is_refused_from_then_on(
    online: Online, database: Database
) -> None:
    body = online.chat(KILLER)
    await lost_before(database, body, 2, ago_s=HOLD_S + 1)
    await quarantine(online).poll()
    for _ in range(2):
        refused = await asked(online, CHAT_PATH, body)
        assert refused.status_code == 422
        assert "24 hours" in refused.json()["error"]["message"]
        assert "retry-after" not in refused.headers
    assert len(online.engine.received) == 1


async def test_an_engine_that_drops_a_request_by_itself_is_not_lost(
    online: Online, database: Database
) -> None:
    for _ in range(3):
        dropped = await asked(online, CHAT_PATH, online.chat("fake:finish=abort"))
        assert dropped.json()["error"]["code"] != "engine_failure"
    async with database.unit_of_work() as session:
        assert await suspects.known(session) == []


async def test_without_a_loss_no_request_is_looked_at(
    online: Online, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def noted(path: str, body: dict[str, Any]) -> bytes:
        looked.append(path)
        return digest_of(path, body)

    monkeypatch.setattr("gateway.prompts.quarantine.digest_of", noted)
    assert (await asked(online, CHAT_PATH, online.chat("hi"))).status_code == 200
    assert looked == []
    await lost_before(database, online.chat("other"), 1, ago_s=0)
    await quarantine(online).poll()
    assert (await asked(online, CHAT_PATH, online.chat("hi"))).status_code == 200
    assert looked
