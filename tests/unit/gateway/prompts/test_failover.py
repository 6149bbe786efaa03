from __future__ import annotations

from typing import Any

import pytest

from api.errors import EngineNotReached, EngineUnavailable, RequestQuarantined
from api.numbers import UNKNOWN
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.estimate import weigh
from engine_adapter.client.pool import EnginePool
from gateway.auth.principal import Principal
from gateway.engines.chat_pressure import ChatPressure
from gateway.prompts.failover import Failover
from gateway.prompts.prompt import prompt_of
from gateway.prompts.quarantine import Quarantine
from store.session import Database
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

AWAY = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
"""A gateway without its database goes by its own losses."""

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def failover(num_engines: int = 3, *, may_retry: bool = True) -> Failover:
    settings = FakeSettings(model="m")
    clients = [
        FakeEngineClient(FakeEngine(settings), url=f"fake://{i}") for i in range(num_engines)
    ]
    pool = EnginePool(clients)
    await pool.probe()
    prompt = prompt_of(
        pool,
        weigh(CHAT_PATH, CHAT, UNKNOWN, is_large=False, is_routed=pool.routes_by_prompt),
        Principal("proj", "key"),
        request_id="r",
        timeout_s=9.0,
    )
    return Failover(pool, prompt, Quarantine(AWAY), ChatPressure(), may_retry=may_retry)


async def lose(one: Failover, error: EngineUnavailable, cause: BaseException | None) -> None:
    """Lose the current engine as a call does, and go on."""
    try:
        with one._engines.using(one.route):
            raise error from cause
    except EngineUnavailable as raised:
        await one.go_on(raised)


async def test_what_reached_no_engine_goes_on_until_there_is_none() -> None:
    one = await failover()
    tried = {one.route.member.url}
    for _ in range(2):
        await lose(one, EngineNotReached("refused"), ConnectionRefusedError())
        tried.add(one.route.member.url)
    assert len(tried) == 3
    with pytest.raises(EngineNotReached):
        await lose(one, EngineNotReached("refused"), ConnectionRefusedError())


async def test_what_was_lost_goes_elsewhere_once() -> None:
    one = await failover()
    first = one.route.member
    await lose(one, EngineUnavailable("lost"), ConnectionResetError())
    assert one.route.member is not first
    with pytest.raises(RequestQuarantined, match="2 times"):
        await lose(one, EngineUnavailable("lost"), ConnectionResetError())


async def test_what_was_lost_ends_where_it_is_set_so() -> None:
    one = await failover(may_retry=False)
    with pytest.raises(EngineUnavailable, match="lost"):
        await lose(one, EngineUnavailable("lost"), ConnectionResetError())


async def test_what_has_begun_ends() -> None:
    one = await failover()
    one.begun = True
    for error in (EngineUnavailable("lost"), EngineNotReached("refused")):
        with pytest.raises(type(error)):
            await lose(one, error, ConnectionResetError())


async def test_what_took_too_long_ends() -> None:
    one = await failover()
    with pytest.raises(EngineUnavailable, match="slow"):
        await lose(one, EngineUnavailable("slow"), TimeoutError())
