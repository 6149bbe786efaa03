from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from batch.clock import SystemClock
from batch.engine_watch import EngineWatch
from engine_adapter.client.base import LiveRids
from engine_adapter.client.fake import FakeEngine, FakeEngineClient, FakeSettings
from engine_adapter.wire.errors import EngineUnavailable


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
    assert (watch.model, watch.size) == ("fake-model", 64)
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
    watch.note_refused()
    changed.clear()
    await asyncio.wait_for(changed.wait(), 5)
    assert watch.size == 32
