"""What the dispatcher costs per row, and how many rows it does in a second.

    python -m bench.batch_dispatch

Claim, body, call, answer, fenced write. A real Postgres (fsync on), a fake engine behind HTTP in a
process of its own that answers after 20 ms, the local file store, input lines of 2 KB. Timed is
one dispatcher as the worker runs it, from its lease to the last written result; in turns with as
many rows at the engine as is usual, and with four times as many.

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop
from sqlalchemy import text

from batch.files.local import LocalFileStore
from batch.finish.finalize import finalize
from batch.run.dispatch import DispatchLimits
from batch.states import BatchStatus
from batch.transition import move
from bench.batches import LINE_BYTES, dispatcher, line, record_batch
from bench.processes import postgres_cpu_s, postgres_pid
from bench.report import at_least, at_most, option_parser, report, scratch_folder
from bench.servers import postgres_url, quick_engine
from engine_adapter.client.http import HttpEngineClient
from service.garbage import freeze_gc
from store.bounded_connection import WORK_LIMIT_S
from store.repositories import row as rows
from store.session import Database

NUM_ROWS = 20_000
LATENCY_MS = 20
IN_FLIGHT = (256, 1024)
TARGET_CPU_US = 250.0
TARGET_ROWS_PER_S = 2500.0


async def _bytes() -> AsyncIterator[bytes]:
    for number in range(NUM_ROWS):
        yield line(number) + b"\n"


async def _rows() -> AsyncIterator[rows.NewRow]:
    for number in range(NUM_ROWS):
        offset = number * (LINE_BYTES + 1)
        yield rows.NewRow(number + 1, f"request-{number}", offset, LINE_BYTES)


async def add_whole_batch(database: Database, store: LocalFileStore, file_id: str) -> str:
    """A batch as validation leaves it; its id."""
    stored = await store.put(file_id, _bytes())
    assert stored.size_bytes == NUM_ROWS * (LINE_BYTES + 1)
    async with database.unit_of_work() as session:
        batch = await record_batch(
            session, file_id, size_bytes=stored.size_bytes, sha256=stored.sha256
        )
        await rows.ingest(session, batch.id, _rows())
        values = {"num_total": NUM_ROWS, "model": "fake-model"}
        assert await move(session, batch.id, BatchStatus.IN_PROGRESS, values=values)
        return batch.id


async def measure(url: str, engine_url: str, folder: Path) -> dict[str, Any]:
    """Dispatch a batch to its end for each of `IN_FLIGHT`."""
    database = Database(url, pool_size=4, ask_first=False, limit_s=WORK_LIMIT_S)
    store = LocalFileStore(folder)
    measured: dict[str, Any] = {"num_rows": NUM_ROWS, "line_bytes": LINE_BYTES}
    for number, in_flight in enumerate(IN_FLIGHT):
        batch_id = await add_whole_batch(database, store, f"file-input-{number}")
        told = await _dispatched(database, store, engine_url, batch_id, in_flight)
        measured |= {f"{name}_{in_flight}": value for name, value in told.items()}
    await database.dispose()
    return measured


async def _dispatched(
    database: Database, store: LocalFileStore, engine_url: str, batch_id: str, in_flight: int
) -> dict[str, float]:
    """One batch with so many rows at the engine, then its files."""
    engine = HttpEngineClient(engine_url)
    limits = DispatchLimits(max_in_flight=in_flight)
    dispatching = await dispatcher(engine, database, store, limits=limits)
    rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    postgres = await postgres_pid(database)
    postgres_before_s = postgres_cpu_s(postgres)
    cpu = time.process_time()
    ending = await dispatching.run()
    cpu_s = time.process_time() - cpu
    postgres_s = postgres_cpu_s(postgres) - postgres_before_s
    rss_growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss_before
    assert (ending.num_written, ending.num_fenced) == (NUM_ROWS, 0)
    async with database.unit_of_work() as session:
        seconds = await session.scalar(
            text(
                "SELECT extract(epoch FROM max(created_at) - min(created_at)) FROM row_results"
                " WHERE batch_id = :id"
            ),
            {"id": batch_id},
        )
    finalize_start = time.perf_counter()
    assert await finalize(database, store, batch_id) is BatchStatus.COMPLETED
    finalize_s = time.perf_counter() - finalize_start
    await engine.close()
    return {
        "dispatcher_cpu_us_per_row": round(cpu_s / NUM_ROWS * 1e6, 1),
        "postgres_cpu_us_per_row": round(postgres_s / NUM_ROWS * 1e6, 1),
        "rows_per_s": round(NUM_ROWS / float(seconds), 1),
        "finalize_s": round(finalize_s, 3),
        "peak_rss_growth_mib": round(rss_growth / 1024, 1),
    }


def main() -> int:
    """Start a Postgres and a fake engine, measure, report."""
    option_parser(__doc__).parse_args()
    freeze_gc()
    with (
        scratch_folder() as folder,
        postgres_url(folder) as url,
        quick_engine(LATENCY_MS) as engine,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measured = runner.run(measure(url, engine.url, folder / "files"))
    usual = IN_FLIGHT[0]
    targets = {
        f"dispatcher_cpu_us_per_row_{usual}": at_most(TARGET_CPU_US),
        f"rows_per_s_{usual}": at_least(TARGET_ROWS_PER_S),
    }
    return report("batch_dispatch", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
