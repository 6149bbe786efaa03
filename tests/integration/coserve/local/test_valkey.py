"""The embedded broker: behind a password, survives kill -9 with what it was given."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest
import redis
from redis.exceptions import AuthenticationError

from coserve.local import valkey
from coserve.local.part import Part, PartState
from coserve.local.plans import valkey_plan


async def test_a_killed_broker_comes_back_with_its_messages(tmp_path: Path) -> None:
    files = valkey.prepare(tmp_path)
    part = Part(valkey_plan(files, tmp_path), say=lambda _: None, changed=lambda: None)
    await part.start()
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(part.keep())
        with redis.Redis.from_url(files.url) as client:
            for number in range(1000):
                client.rpush("queue", number)
        await asyncio.sleep(1.1)  # the log is synced every second
        assert part.pid is not None
        os.kill(psutil.Process(part.pid).children()[0].pid, signal.SIGKILL)
        async with asyncio.timeout(15):
            while not (part.num_restarts == 1 and part.state is PartState.READY):
                await asyncio.sleep(0.05)
        with redis.Redis.from_url(files.url) as client:
            assert client.llen("queue") == 1000
        keeper.cancel()
    await part.stop()
    assert not valkey.is_ready(files)


def test_nobody_without_the_password_gets_in(valkey_server: valkey.ValkeyFiles) -> None:
    address = f"redis://{valkey.HOST}:{valkey_server.port}/0"
    with redis.Redis.from_url(address) as client, pytest.raises(AuthenticationError):
        client.ping()
    config = valkey_server.directory / "valkey.conf"
    assert config.stat().st_mode & 0o777 == 0o600
