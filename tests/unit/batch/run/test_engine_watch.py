from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from api.errors import EngineUnavailable
from batch.run.chat_room import MAX_QUEUE, REST_S, START
from batch.run.engine_watch import EngineWatch
from engine_adapter.client.base import EngineFacts, LiveRids
from service.clock import SystemClock
from store.repositories.chat_report import ChatNow
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings


async def _until(condition: asyncio.Event, watch: EngineWatch, *, up: bool) -> None:
    async with asyncio.timeout(8):
        while watch.up is not up:
            condition.clear()
            await condition.wait()


@pytest.fixture
async def followed() -> AsyncIterator[tuple[FakeEngine, EngineWatch, asyncio.Event]]:
    engine = FakeEngine(FakeSettings(max_running=10))
    changed = asyncio.Event()
    watch = EngineWatch(FakeEngineClient(engine), SystemClock(), max_in_flight=256, changed=changed)
    task = asyncio.ensure_future(watch.run())
    yield engine, watch, changed
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_engine_comes_goes_and_comes_back(
    followed: tuple[FakeEngine, EngineWatch, asyncio.Event],
) -> None:
    engine, watch, changed = followed
    await _until(changed, watch, up=True)
    assert (watch.model, watch.size) == ("fake-model", 15)
    engine.down = True
    watch.note_lost()
    await _until(changed, watch, up=False)
    engine.down = False
    await _until(changed, watch, up=True)


async def test_a_lost_call_alone_does_not_take_the_engine_down(
    followed: tuple[FakeEngine, EngineWatch, asyncio.Event],
) -> None:
    _, watch, changed = followed
    await _until(changed, watch, up=True)
    watch.note_lost()
    assert not watch.open, "nothing is sent before the engine has answered"
    changed.clear()
    await asyncio.wait_for(changed.wait(), 5)
    assert watch.open


async def test_rows_at_one_of_ours_at_level_0_follow_what_chat_gets() -> None:
    engine, chat = FakeEngine(), ChatNow(num_open=1, pressure=0.9)
    engine.report = {"coserving_level": 0}
    clock, changed = _Clock(), asyncio.Event()

    async def told() -> ChatNow:
        return chat

    watch = EngineWatch(
        FakeEngineClient(engine), clock, max_in_flight=64, changed=changed, chat=told
    )
    watch.rows = _Rows()
    task = asyncio.ensure_future(watch.run())
    await _until(changed, watch, up=True)
    assert watch.classes_only
    assert watch.size == START

    async def until_size(is_so: Callable[[int], bool]) -> None:
        async with asyncio.timeout(8):
            while not is_so(watch.size):
                changed.clear()
                await changed.wait()

    chat = ChatNow(num_open=1, pressure=1.5)
    await until_size(lambda size: size == 0)
    clock.now_s += REST_S
    chat = ChatNow(num_open=1, pressure=0.1)
    await until_size(lambda size: size > START)
    engine.waiting = {str(number): asyncio.Event() for number in range(MAX_QUEUE + 1)}
    await asyncio.sleep(1.5)  # the list of who waits is looked at once a second
    before = watch.size
    await asyncio.sleep(1.0)
    assert watch.size == before, "whoever waits there stands before chat"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class _Rows:
    """As many rows as there may be."""

    def poll(self, live: LiveRids) -> tuple[int, float | None]:
        return len(live), None

    def __len__(self) -> int:
        return 64


class _Counted(FakeEngineClient):
    """Counts how often it was asked what it is."""

    num_asked = 0

    async def facts(self) -> EngineFacts:
        self.num_asked += 1
        return await super().facts()


async def test_an_engine_without_our_plugin_gets_no_rows() -> None:
    client, changed = _Counted(FakeEngine(FakeSettings(plugin=False))), asyncio.Event()
    watch = EngineWatch(client, SystemClock(), max_in_flight=8, changed=changed)
    task = asyncio.ensure_future(watch.run())
    async with asyncio.timeout(8):
        while client.num_asked < 2:  # asked again: the first answer was not good enough
            await asyncio.sleep(0.01)
    assert not watch.up
    client.engine.settings = FakeSettings()
    await _until(changed, watch, up=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class _Clock(SystemClock):
    """Moved by hand."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class _Busy(FakeEngineClient):
    """Misses every other health check, and never says what is live."""

    num_asked = 0

    async def healthy(self) -> bool:
        self.num_asked += 1
        return self.num_asked % 2 == 1

    async def live_rids(self) -> LiveRids:
        raise EngineUnavailable("too busy to say")


async def test_a_busy_engine_is_not_a_gone_one() -> None:
    client = _Busy()
    watch = EngineWatch(client, SystemClock(), max_in_flight=8, changed=asyncio.Event())
    task = asyncio.ensure_future(watch.run())
    while client.num_asked < 4:
        await asyncio.sleep(0.01)
    assert watch.open
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_refusals_shrink_the_window(
    followed: tuple[FakeEngine, EngineWatch, asyncio.Event],
) -> None:
    _, watch, changed = followed
    await _until(changed, watch, up=True)
    watch.note_refused(num_in_flight=10)
    assert watch.size == 10
    assert watch.open
    changed.clear()
    await asyncio.wait_for(changed.wait(), 5)
    assert watch.size == 10, "what was just refused is not tried at once"
    async with asyncio.timeout(5):
        while watch.size == 10:
            await asyncio.sleep(0.05)
    assert watch.size == 11


async def test_an_engine_that_accepts_nothing_is_asked_less_and_less(
    followed: tuple[FakeEngine, EngineWatch, asyncio.Event],
) -> None:
    _, watch, changed = followed
    await _until(changed, watch, up=True)
    pauses = []
    for _ in range(3):
        began_s = time.monotonic()
        watch.note_refused(num_in_flight=0)
        assert watch.size == 1
        while not watch.open:
            await asyncio.sleep(0.01)
        pauses.append(time.monotonic() - began_s)
    assert 0.25 <= pauses[0] < pauses[1] < pauses[2]
    await asyncio.sleep(1.2)
    assert watch.size == 1, "it does not grow before a call was answered"
    watch.note_answered()
    watch.note_refused(num_in_flight=0)
    assert not watch.open
    await asyncio.sleep(0.4)
    assert watch.open


async def test_the_more_growth_is_refused_the_longer_the_next_one_waits() -> None:
    clock = _Clock()
    watch = EngineWatch(FakeEngineClient(), clock, max_in_flight=256, changed=asyncio.Event())
    watch.size = 40
    busy = LiveRids(running=frozenset(map(str, range(40))))
    refused_at_s: list[float] = []
    while clock.now_s < 3600:
        watch._adjust(busy)
        if watch.size > 40:
            watch.note_refused(num_in_flight=40)
            refused_at_s.append(clock.now_s)
        clock.now_s += 1.0
    assert watch.size == 40
    late = [at_s for at_s in refused_at_s if at_s > 1800]
    assert 25 <= len(late) <= 60, "about one call a minute or two"
