"""kill -9 between the POST and its outcome: the event arrives again, under the same id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batch.webhooks import signature
from store.session import Database
from tests.fixtures.receiver import LOOPBACK, receiving
from tests.fixtures.webhooks import (
    add_endpoint,
    deliver_now,
    deliveries_to,
    end_batch,
    pass_time,
)

ROOT = Path(__file__).parents[4]

# The stage as the worker runs it, in a process of its own.
DELIVER = (
    "from batch.settings import BatchSettings; from batch.worker.drain import DrainPipe;"
    "from batch.worker.stages import Stages; from batch.worker.app import app;"
    "stages = Stages(app, BatchSettings(), DrainPipe());"
    "stages.run(stages.deliver())"
)


@pytest.mark.contract("W-08")
async def test_a_deliverer_killed_after_its_post(
    database: Database, database_url: str, broker_url: str
) -> None:
    async with receiving(delay_s=60) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        batch_id = await end_batch(database)
        env = {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "COSERVE_WEBHOOK_NETWORKS": LOOPBACK,
        }
        process = subprocess.Popen([sys.executable, "-c", DELIVER], cwd=ROOT, env=os.environ | env)
        await receiver.until(1, limit_s=30)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

        (delivery,) = await deliveries_to(database, endpoint.id)
        assert (delivery.status, delivery.attempts) == ("pending", 1)
        assert delivery.leased_until_at is not None
        receiver.delay_s = 0.0
        await deliver_now(database)
        assert len(receiver.received) == 1, "the lease still holds"
        await pass_time(database, hours=1)
        await deliver_now(database)

        first, second = receiver.received
        assert first.webhook_id == second.webhook_id
        assert first.body == second.body
        event = second.unwrap(signature.shown(endpoint.secret))
        assert (event.type, event.data.id) == ("batch.cancelled", batch_id)
        (delivery,) = await deliveries_to(database, endpoint.id)
        assert (delivery.status, delivery.attempts) == ("delivered", 2)
