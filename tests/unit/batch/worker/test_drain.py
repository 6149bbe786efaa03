from __future__ import annotations

import asyncio
import os

import pytest

from batch.worker.drain import DrainPipe


async def test_a_signal_sets_the_event() -> None:
    pipe = DrainPipe()
    with pipe.watched() as drain:
        await asyncio.sleep(0.01)
        assert not drain.is_set()
        pipe.signal()
        await asyncio.wait_for(drain.wait(), 1)
    pipe.signal()  # twice is as good as once


async def test_one_that_came_before_is_seen_too() -> None:
    pipe = DrainPipe()
    pipe.signal()
    for _ in range(2):
        with pipe.watched() as drain:
            await asyncio.wait_for(drain.wait(), 1)


async def test_the_owner_keeps_its_end() -> None:
    pipe = DrainPipe()
    pipe.enter_child()  # this is the owner: nothing to give up
    with pipe.watched() as drain, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await drain.wait()
    pipe.signal()


def test_a_child_sees_its_worker_die() -> None:
    """Fork a "worker" that forks a "child"; the worker dies without a word."""
    read_fd, write_fd = os.pipe()
    worker = os.fork()
    if worker == 0:
        pipe = DrainPipe()
        if os.fork() == 0:
            pipe.enter_child()

            async def watch() -> None:
                with pipe.watched() as drain:
                    await asyncio.wait_for(drain.wait(), 10)

            asyncio.run(watch())
            os.write(write_fd, b"seen")
        os._exit(0)
    os.waitpid(worker, 0)
    assert os.read(read_fd, 4) == b"seen"
    os.close(read_fd)
    os.close(write_fd)
