"""What a queue holds, on a real broker."""

from __future__ import annotations

import asyncio
import time

import redis

from batch.queue import REST_S, STAGES, CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app

KEY = f"coserve:{STAGES}"


async def test_many_wishes_are_few_messages_and_the_last_one_is_heard(broker_url: str) -> None:
    """Each message is taken at once, as a worker with nothing to do takes it."""
    queue = CeleryQueue(make_app(BatchSettings.model_validate({"BROKER_URL": broker_url})))
    with redis.Redis.from_url(broker_url) as broker:
        num_taken, began_s = 0, time.monotonic()
        for _ in range(500):
            await queue.wake(STAGES)
            num_taken += broker.lpop(KEY) is not None
            await asyncio.sleep(0)
        most = 2 + (time.monotonic() - began_s) / REST_S
        assert 1 <= num_taken <= most
        await queue.wake(STAGES)
        await asyncio.wait(list(queue.sending.values()))
        assert broker.llen(KEY) == 1, "for who came last"
    assert not queue.sending
