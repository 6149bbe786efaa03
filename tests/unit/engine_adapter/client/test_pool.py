from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.errors import EngineUnavailable, InvalidRequest, ModelNotFound
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    EngineFacts,
)
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.pool import SLOW_PROBES, EnginePool
from engine_adapter.client.routing import prompt_of
from service.loops import DOWN_AFTER, Loops
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings
from tests.fakes.server import make_app


def member(name: str, model: str = "m") -> FakeEngineClient:
    return FakeEngineClient(FakeEngine(FakeSettings(model=model)), url=f"fake://{name}")


class SlowClient(FakeEngineClient):
    """An engine in the middle of a very long step."""

    async def facts(self) -> EngineFacts:
        raise EngineUnavailable("slow") from TimeoutError()


async def test_models_are_known_while_their_engine_is_down() -> None:
    a, b = member("a", "one"), member("b", "two")
    pool = EnginePool([a, b])
    assert pool.models() == []
    with pytest.raises(EngineUnavailable):
        pool.pick("one")
    await pool.probe()
    assert [model.id for model in pool.models()] == ["one", "two"]
    a.engine.down = True
    await pool.probe()
    assert [(model.id, model.up) for model in pool.models()] == [("one", False), ("two", True)]
    with pytest.raises(EngineUnavailable):
        pool.pick("one")
    with pytest.raises(ModelNotFound):
        pool.pick("three")
    assert pool.pick("two").member.url == "fake://b"


async def test_an_engine_without_our_plugin_is_not_used() -> None:
    client = member("a")
    pool = EnginePool([client])
    await pool.probe()
    stock = FakeSettings(model="m", plugin=False)
    client.engine.settings, ours = stock, client.engine.settings
    await pool.probe()
    assert "runs without coserve's scheduler plugin" in pool.members[0].why
    with pytest.raises(EngineUnavailable):
        pool.pick("m")
    client.engine.settings = ours
    await pool.probe()
    assert pool.pick("m").member.why == ""


async def test_models_are_known_from_an_earlier_life() -> None:
    client = member("a")
    client.engine.down = True
    pool = EnginePool([client])
    pool.remember({"fake://a": EngineFacts("m", 100), "fake://gone": EngineFacts("x", 1)})
    await pool.probe()
    assert [(model.id, model.up) for model in pool.models()] == [("m", False)]


async def test_the_least_busy_engine_is_next() -> None:
    pool = EnginePool([member("a"), member("b")])
    await pool.probe()
    first = pool.pick("m")
    with pool.using(first):
        assert pool.pick("m").member is not first.member
    assert first.member.in_flight == 0


async def test_calls_picked_in_one_moment_take_turns() -> None:
    pool = EnginePool([member("a"), member("b")])
    await pool.probe()
    urls = [pool.pick("m").member.url for _ in range(4)]
    assert urls == ["fake://a", "fake://b", "fake://a", "fake://b"]


async def test_a_call_that_finds_its_engine_gone_ejects_it_and_a_probe_brings_it_back() -> None:
    pool = EnginePool([member("a")])
    await pool.probe()
    chosen = pool.pick("m")
    with pytest.raises(EngineUnavailable), pool.using(chosen):
        raise EngineUnavailable("lost") from ConnectionResetError()
    assert not chosen.member.up
    assert chosen.member.why == "lost"
    await pool.probe()
    assert chosen.member.up


async def test_while_an_engine_is_away_the_error_says_when_it_is_expected() -> None:
    a = member("a")
    pool = EnginePool([a])
    with pytest.raises(EngineUnavailable, match="One is expected in"):
        pool.pick("m")
    await pool.probe()
    (one,) = pool.members
    one.absence.usual_s = 12.0  # as it was the last time
    with pytest.raises(EngineUnavailable) as lost, pool.using(pool.pick("m")):
        raise EngineUnavailable("gone") from ConnectionResetError()
    with pytest.raises(EngineUnavailable, match="cannot be reached") as away:
        pool.pick("m")
    for error in (lost.value, away.value):
        assert 1 <= int(error.headers["retry-after"]) <= 12
    await pool.probe()
    assert pool.pick("m").member is one
    assert one.absence.since_s is None


async def test_a_call_that_took_too_long_ejects_nobody() -> None:
    pool = EnginePool([member("a")])
    await pool.probe()
    chosen = pool.pick("m")
    with pytest.raises(EngineUnavailable), pool.using(chosen):
        raise EngineUnavailable("slow") from TimeoutError()
    assert chosen.member.up


async def test_only_several_slow_probes_in_a_row_eject() -> None:
    pool = EnginePool([SlowClient(FakeEngine(FakeSettings(model="m")))])
    pool.members[0].up = True
    ups = []
    for _ in range(SLOW_PROBES):
        await pool.probe()
        ups.append(pool.members[0].up)
    assert ups == [True] * (SLOW_PROBES - 1) + [False]


async def test_an_engine_that_is_late_was_not_asked_yet() -> None:
    """Or a gateway that starts beside busy engines gets requests before it knows of a model."""
    pool = EnginePool([SlowClient(FakeEngine(FakeSettings(model="m")))])
    asked = []
    for _ in range(SLOW_PROBES):
        await pool.probe()
        asked.append(pool.asked)
    assert asked == [False] * (SLOW_PROBES - 1) + [True]


async def test_new_facts_are_told_once() -> None:
    told: list[tuple[str, str]] = []

    async def seen(url: str, facts: EngineFacts) -> None:
        told.append((url, facts.model))

    pool = EnginePool([member("a")], seen=seen)
    await pool.probe()
    await pool.probe()
    assert told == [("fake://a", "m")]


async def test_a_model_is_listed_once_its_facts_were_told() -> None:
    """Who reads of it sends a batch at once, which another process validates."""
    written = asyncio.Event()

    async def seen(url: str, facts: EngineFacts) -> None:
        await written.wait()

    pool = EnginePool([member("a")], seen=seen)
    probing = asyncio.ensure_future(pool.probe())
    await asyncio.sleep(0.05)
    assert pool.models() == []
    written.set()
    await probing
    assert [info.id for info in pool.models()] == ["m"]


async def test_each_kind_of_model_at_its_own_path() -> None:
    embedder = FakeEngineClient(FakeEngine(FakeSettings(model="e", embeds=True)), url="fake://e")
    told: list[str] = []

    async def seen(_: str, facts: EngineFacts) -> None:
        told.append(facts.model)

    pool = EnginePool([member("a"), embedder], seen=seen)
    await pool.probe()
    assert pool.pick("e", EMBEDDINGS_PATH).member.url == "fake://e"
    assert pool.pick("m", COMPLETIONS_PATH).member.url == "fake://a"
    for model, path in (("e", CHAT_PATH), ("e", COMPLETIONS_PATH), ("m", EMBEDDINGS_PATH)):
        with pytest.raises(InvalidRequest) as refused:
            pool.pick(model, path)
        assert (refused.value.param, refused.value.code) == ("model", "unsupported_model")
    embedder.engine = FakeEngine(FakeSettings(model="e"))
    await pool.probe()
    assert pool.pick("e").member.url == "fake://e"
    assert told == ["m", "e", "e"], "another kind under the same name is told"


async def test_it_watches_by_itself() -> None:
    client = member("a")
    client.engine.down = True
    pool = EnginePool([client])
    async with Loops() as loops:
        pool.watch(loops)
        await asyncio.sleep(0.05)
        assert [info.up for info in pool.models()] == []
        client.engine.down = False
        async with asyncio.timeout(3):
            while not pool.models():
                await asyncio.sleep(0.02)
    await pool.close()


class _Odd(FakeEngineClient):
    """An engine whose answer nobody expected."""

    async def facts(self) -> EngineFacts:
        raise KeyError("facts")


async def test_an_engine_that_cannot_be_watched_is_not_used_and_takes_no_other_along() -> None:
    odd = _Odd(url="fake://odd")
    pool = EnginePool([odd, member("good")])
    counted: list[tuple[str, int]] = []
    async with Loops(lambda loop, num: counted.append((loop, num)), first_pause_s=0.001) as loops:
        pool.watch(loops)
        async with asyncio.timeout(3):
            while not pool.models() or counted.count(("engine", 1)) < DOWN_AFTER + 1:
                await asyncio.sleep(0.01)
        assert [one.up for one in pool.members] == [False, True]
        assert pool.asked
        assert "does not understand" in pool.members[0].why
        assert pool.pick("m").member.url == "fake://good"
        assert loops.down == []
        await pool.follow({"fake://good": False}, lambda url: member(url))
        num = counted.count(("engine", 1))
        await asyncio.sleep(0.05)
        assert counted.count(("engine", 1)) == num, "one that has left is not watched"
    await pool.close()


async def test_members_come_drain_and_leave() -> None:
    made: list[FakeEngineClient] = []

    def make(url: str) -> FakeEngineClient:
        made.append(member(url.removeprefix("fake://")))
        return made[-1]

    pool = EnginePool()
    pool.remember({"fake://b": EngineFacts("m", 100)})
    async with Loops() as loops:
        pool.watch(loops)
        await pool.follow({"fake://a": False, "fake://b": False}, make)
        assert [info.id for info in pool.models()] == ["m"], "known before it was ever asked"
        async with asyncio.timeout(3):
            while not all(one.up for one in pool.members):
                await asyncio.sleep(0.02)
        await pool.follow({"fake://a": True, "fake://b": False}, make)
        assert {pool.pick("m").member.url for _ in range(4)} == {"fake://b"}
        assert pool.open_urls == ["fake://b"]
        await pool.follow({"fake://a": True, "fake://b": True}, make)
        assert [info.up for info in pool.models()] == [False]
        with pytest.raises(EngineUnavailable):
            pool.pick("m")
        assert len(made) == 2, "a client lives as long as its engine is in use"
    await pool.close()


class _Closes(FakeEngineClient):
    closed = False

    async def close(self) -> None:
        self.closed = True


async def test_an_engine_that_left_is_closed_after_its_last_call() -> None:
    pool = EnginePool()
    await pool.follow({"fake://a": False}, lambda url: _Closes(url=url))
    await pool.probe()
    chosen = pool.pick("fake-model")
    client = chosen.member.client
    assert isinstance(client, _Closes)
    with pool.using(chosen):
        await pool.follow({}, lambda url: _Closes(url=url))
        assert pool.members == []
        assert not client.closed
    await pool.follow({}, lambda url: _Closes(url=url))
    assert client.closed


def said(*turns: str) -> dict[str, object]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"model": "m", "messages": messages}


async def test_a_conversation_goes_on_where_it_began() -> None:
    pool = EnginePool([member(name) for name in "abcd"])
    await pool.probe()
    for number in range(8):
        turns = [f"question {number} " * 200]
        first = pool.pick("m", CHAT_PATH, prompt_of(CHAT_PATH, said(*turns)))
        with pool.using(first):
            first.note_token()
        turns += ["an answer", "and then?"]
        again = pool.pick("m", CHAT_PATH, prompt_of(CHAT_PATH, said(*turns)))
        assert again.member is first.member
        assert again.new_tokens < first.new_tokens / 2 or not first.new_tokens


async def test_prompts_that_wait_send_the_next_one_elsewhere() -> None:
    pool = EnginePool([member("a"), member("b")])
    await pool.probe()
    body = said("the same long document " * 400)
    first = pool.pick("m", CHAT_PATH, prompt_of(CHAT_PATH, body))
    first.new_tokens = 100_000
    with pool.using(first):
        assert pool.pick("m", CHAT_PATH, prompt_of(CHAT_PATH, body)).member is not first.member
    assert first.member.waiting_tokens == 0


async def test_calls_of_other_gateways_count_as_an_engine_reports_them() -> None:
    client = member("a")
    pool = EnginePool([client])
    client.engine.report = {}
    client.engine._classes.update({"1": "online", "2": "offline", "3": "flex"})
    await pool.probe()
    assert pool.members[0].num_calls == 2


async def test_an_engine_that_was_lost_comes_back_with_an_empty_cache() -> None:
    pool = EnginePool([member("a"), member("b")])
    await pool.probe()
    body = said("a long question " * 300)
    first = pool.pick("m", CHAT_PATH, prompt_of(CHAT_PATH, body))
    with pytest.raises(EngineUnavailable), pool.using(first):
        raise EngineUnavailable("lost") from ConnectionResetError()
    await pool.probe()
    assert pool.pick("m", CHAT_PATH, prompt_of(CHAT_PATH, body)).new_tokens > 1000


@pytest.mark.parametrize("status", [429, 503])
async def test_an_engine_at_its_limit_is_busy_and_not_gone(status: int) -> None:
    full = False

    @web.middleware
    async def turn_away(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        return web.Response(status=status) if full else await handler(request)

    app = make_app(FakeEngine(FakeSettings(model="m")))
    app.middlewares.append(turn_away)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        client = HttpEngineClient(url)
        pool = EnginePool([client])
        await pool.probe()
        assert pool.pick("m").member.url == url
        full = True
        for _ in range(SLOW_PROBES - 1):
            await pool.probe()
        assert pool.pick("m").member.up, "it is in the middle of much work"
        await pool.probe()
        assert "busy" in pool.members[0].why
        with pytest.raises(EngineUnavailable, match="is busy"):
            pool.pick("m")
        full = False
        await pool.probe()
        assert pool.pick("m").member.why == ""
        await pool.close()


async def test_an_engine_that_is_drained_is_not_gone() -> None:
    pool = EnginePool([member("a")])
    await pool.probe()
    pool.members[0].draining = True
    with pytest.raises(EngineUnavailable, match="being drained"):
        pool.pick("m")
