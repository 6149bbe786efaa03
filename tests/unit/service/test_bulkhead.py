"""A kind of work that hangs takes the threads of no other kind."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from api.batch_errors import StorageUnavailable
from batch.files.local import NUM_THREADS, LocalFileStore
from batch.queue import TASKS, CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app
from service.asking import asks_for
from service.bulkhead import Bulkhead

LIMIT_S = 20.0
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO")


async def one(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_a_hung_broker_takes_no_thread_of_files_or_names(tmp_path: Path) -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    settings = BatchSettings.model_validate({"BROKER_URL": f"redis://127.0.0.1:{port}/0"})
    queue, store = CeleryQueue(make_app(settings)), LocalFileStore(tmp_path)
    await asyncio.gather(*map(queue.wake, TASKS))
    sending = list(queue.sending.values())
    try:
        async with asyncio.timeout(LIMIT_S):
            await store.put("file-a", one(b"abc"))
            assert await store.read_range("file-a", 1, 2) == b"bc"
            assert await loop.getaddrinfo("localhost", 80)
        assert set(queue.sending) == set(TASKS), "all hang still"
    finally:
        over.set()
        server.close()
        await asyncio.wait(sending)


async def test_a_hung_disk_takes_no_thread_of_names(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    store = LocalFileStore(tmp_path)
    await store.put("file-a", one(b"abc"))
    # A pipe without a writer: whoever opens it waits.
    pipe = tmp_path / "objects" / "-b" / "file-b"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    reads = [asyncio.ensure_future(store.read_range("file-b", 0, 1)) for _ in range(NUM_THREADS)]
    try:
        async with asyncio.timeout(LIMIT_S):
            assert await loop.getaddrinfo("localhost", 80)
            assert await asyncio.to_thread(int, "7") == 7
    finally:
        writer = os.open(pipe, os.O_RDWR)
        ended = await asyncio.gather(*reads, return_exceptions=True)
        os.close(writer)
    assert {type(error) for error in ended} == {StorageUnavailable}, (
        "a pipe has no places to read at"
    )


async def test_work_has_its_callers_context_and_says_what_it_raised() -> None:
    threads = Bulkhead("test", 1)
    WHO.set("me")
    assert await threads.run(WHO.get) == "me"
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "x")


async def test_owners_take_turns_however_much_of_one_waits() -> None:
    threads, order, held = Bulkhead("test", 1), list[str](), threading.Event()

    async def work(owner: str, name: str) -> None:
        asks_for(owner)
        await threads.run(order.append, name)

    first = asyncio.ensure_future(threads.run(held.wait, LIMIT_S))
    await asyncio.sleep(0.01)
    waiting = [asyncio.ensure_future(work("a", f"a{n}")) for n in range(4)]
    waiting += [asyncio.ensure_future(work("b", "b0"))]
    given_up = asyncio.ensure_future(work("c", "c0"))
    await asyncio.sleep(0.01)
    given_up.cancel()
    await asyncio.wait([given_up])  # from here on its place is free
    held.set()
    await asyncio.gather(first, *waiting)
    assert order == ["a0", "b0", "a1", "a2", "a3"]
