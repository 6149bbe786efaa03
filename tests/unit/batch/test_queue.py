from __future__ import annotations

import asyncio
import logging
import time

import pytest

from batch.queue import DISPATCH, SEND_LIMIT_S, STAGES, TASKS, CeleryQueue
from batch.settings import BatchSettings
from batch.worker import tasks
from batch.worker.app import app, make_app
from tests.fakes.seams import MemoryQueue


async def test_a_broker_that_is_away_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")
    away = make_app(BatchSettings())
    started_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        await CeleryQueue(away).wake(STAGES)
    assert time.monotonic() - started_s < 2 * SEND_LIMIT_S
    assert "left to the sweep" in caplog.text


async def test_a_broker_that_hangs_has_one_thread_however_many_ask(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("BROKER_URL", f"redis://127.0.0.1:{port}/0")
    queue = CeleryQueue(make_app(BatchSettings()))
    await asyncio.gather(*(queue.wake(STAGES) for _ in range(100)))
    assert len(queue.sending) == 1
    assert "left to the sweep" in caplog.text
    sending = list(queue.sending.values())
    over.set()
    server.close()
    await asyncio.wait(sending)
    assert not queue.sending


async def test_the_fake_remembers() -> None:
    queue = MemoryQueue()
    await queue.wake(STAGES)
    await queue.wake(DISPATCH, 2)
    assert queue.take() == [STAGES, DISPATCH, DISPATCH]
    assert queue.take() == []


def test_every_task_has_a_queue_of_its_own_and_no_argument() -> None:
    assert tasks.__name__  # importing it is what registers them
    known = {name for name in app.tasks if name.startswith("batch.")}
    assert known == set(TASKS)
    routes = app.conf.task_routes
    assert {name: route["queue"] for name, route in routes.items()} == {one: one for one in TASKS}
    for name in TASKS:
        assert app.tasks[name].run.__code__.co_argcount == 0, "what is to be done stands elsewhere"
