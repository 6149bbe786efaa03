"""The memory of a dispatcher that has 50 lines of 15 MiB to send, beside a batch of short ones.

Target: below 1 GiB. A real Postgres, the local file store, a fake engine behind HTTP in a process
of its own that takes a second for each line. What is read is the kernel's high-water mark of this
process, reset before the dispatcher begins.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import uvloop

from batch.files.local import LocalFileStore
from batch.queue import MemoryQueue
from batch.run.dispatch import Dispatcher, DispatchLimits
from batch.run.lease import acquire
from batch.states import BatchStatus
from batch.transition import move
from bench.batch_dispatch import fake_engine
from bench.report import report
from bench.servers import postgres_url
from bench.upload import memory_mib
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from service.clock import SystemClock
from store.models import DEFAULT_PROJECT_ID, File
from store.repositories import batch as batches
from store.repositories import file as files
from store.repositories import row as rows
from store.session import Database

NUM_LARGE, LARGE_BYTES = 50, 15 * 1024**2
NUM_SMALL, SMALL_BYTES = 2000, 2000
TARGET_MIB = 1024.0


def line(number: int, num_bytes: int) -> bytes:
    """One request of so many bytes, which the engine takes a second for if it is a large one."""
    slow = "fake:token_ms=125 " if num_bytes == LARGE_BYTES else ""
    prompt = f"{slow}question-{number}-" + "x" * num_bytes
    body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
    shape: dict[str, Any] = {"custom_id": str(number), "method": "POST", "url": CHAT_PATH}
    whole = orjson.dumps({**shape, "body": body})
    extra = len(whole) - num_bytes
    body["messages"] = [{"role": "user", "content": prompt[:-extra]}]
    return orjson.dumps({**shape, "body": body})


async def add_batch(database: Database, store: LocalFileStore, num_rows: int, length: int) -> str:
    """A batch as validation leaves it; its id."""

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(num_rows):
            yield line(number, length) + b"\n"

    async def new_rows() -> AsyncIterator[rows.NewRow]:
        for number in range(num_rows):
            yield rows.NewRow(number + 1, str(number), number * (length + 1), length)

    key = f"file-{length}"
    stored = await store.put(key, chunks())
    assert stored.size_bytes == num_rows * (length + 1)
    async with database.unit_of_work() as session:
        file = File(
            id=key,
            project_id=DEFAULT_PROJECT_ID,
            purpose="batch",
            filename="in.jsonl",
            size_bytes=stored.size_bytes,
            sha256=stored.sha256,
            storage_key=key,
        )
        await files.add(session, file)
        batch = await batches.add(
            session,
            project_id=DEFAULT_PROJECT_ID,
            key_id=None,
            endpoint=CHAT_PATH,
            completion_window="24h",
            window_s=86400,
            input_file_id=key,
            metadata=None,
            output_expires_after_s=None,
        )
        await rows.ingest(session, batch.id, new_rows())
        values = {"num_total": num_rows, "model": "fake-model"}
        assert await move(session, batch.id, BatchStatus.IN_PROGRESS, values=values)
        return batch.id


def reset_peak_mib() -> float:
    """Begin the high-water mark of this process anew; what it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_mib(os.getpid(), "VmHWM")


async def measure(url: str, engine_url: str, folder: Path) -> dict[str, Any]:
    """Dispatch both batches to their ends."""
    database, store = Database(url, pool_size=4, ask_first=False), LocalFileStore(folder)
    large = await add_batch(database, store, NUM_LARGE, LARGE_BYTES)
    small = await add_batch(database, store, NUM_SMALL, SMALL_BYTES)
    before_mib = reset_peak_mib()
    clock = SystemClock()
    lease = await acquire(engine_url, database, clock)
    assert lease is not None
    engine = HttpEngineClient(engine_url)
    began_s = time.perf_counter()
    ending = await Dispatcher(
        lease, engine, database, store, MemoryQueue(), clock, DispatchLimits(),
        drain=asyncio.Event(),
    ).run()  # fmt: skip
    wall_s = time.perf_counter() - began_s
    peak_mib = memory_mib(os.getpid(), "VmHWM")
    await engine.close()
    async with database.unit_of_work() as session:
        done = [await batches.find(session, name) for name in (large, small)]
    await database.dispose()
    assert [one and one.num_completed for one in done] == [NUM_LARGE, NUM_SMALL]
    assert ending.num_written == NUM_LARGE + NUM_SMALL
    return {
        "peak_rss_mib": round(peak_mib, 1),
        "before_mib": round(before_mib, 1),
        "wall_s": round(wall_s, 1),
        "num_large": NUM_LARGE,
        "large_bytes": LARGE_BYTES,
        "num_small": NUM_SMALL,
    }


def main() -> int:
    """Start a Postgres and a fake engine, measure, report."""
    folder = Path(tempfile.mkdtemp(prefix="csb-"))
    try:
        with (
            postgres_url(folder) as url,
            fake_engine() as engine_url,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            measured = runner.run(measure(url, engine_url, folder / "files"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if report("large_lines", measured, {"peak_rss_mib": (TARGET_MIB, False)}) else 1


if __name__ == "__main__":
    sys.exit(main())
