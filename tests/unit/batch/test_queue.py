from __future__ import annotations

import logging
import time

import pytest

from batch.queue import (
    DISPATCH,
    FINALIZE,
    SEND_LIMIT_S,
    TASK_ROUTES,
    VALIDATE,
    CeleryQueue,
    MemoryQueue,
    Queue,
)
from batch.settings import BatchSettings
from batch.worker import tasks
from batch.worker.app import app, make_app


async def _use(queue: Queue) -> None:
    await queue.enqueue_validate("batch_1")
    await queue.enqueue_finalize("batch_2")
    await queue.wake_dispatchers(["http://one", "http://two"])


class _App:
    """Remembers what Celery is asked to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[str, ...]]] = []

    def send_task(self, name: str, args: tuple[str, ...], *, retry: bool, expires: float) -> None:
        assert not retry
        assert expires > 10
        self.sent.append((name, args))


async def test_messages_carry_ids_only() -> None:
    sender = _App()
    await _use(CeleryQueue(sender))
    assert sender.sent == [
        (VALIDATE, ("batch_1",)),
        (FINALIZE, ("batch_2",)),
        (DISPATCH, ("http://one",)),
        (DISPATCH, ("http://two",)),
    ]


async def test_a_broker_that_is_away_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")
    away = make_app(BatchSettings())
    started_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        await CeleryQueue(away).enqueue_validate("batch_1")
    assert time.monotonic() - started_s < 2 * SEND_LIMIT_S
    assert "left to the sweep" in caplog.text


async def test_the_fake_remembers() -> None:
    queue = MemoryQueue()
    await _use(queue)
    assert queue.take() == [
        (VALIDATE, "batch_1"),
        (FINALIZE, "batch_2"),
        (DISPATCH, "http://one"),
        (DISPATCH, "http://two"),
    ]
    assert queue.take() == []


def test_every_task_has_a_queue_and_only_dispatch_its_own() -> None:
    assert tasks.__name__  # importing it is what registers them
    known = {name for name in app.tasks if name.startswith("batch.")}
    assert known == set(TASK_ROUTES)
    assert {name for name, route in TASK_ROUTES.items() if route["queue"] == "dispatch"} == {
        DISPATCH
    }
