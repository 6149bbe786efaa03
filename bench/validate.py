"""Validation of the largest allowed batch: 50,000 lines of 4 KB into rows of a real Postgres.

    python -m bench.validate

Target: 10 s. The file lies on disk in the local file store; what is timed is the stage as the
worker runs it, from the first query to the commit. A second run has a fault in every line.

`make bench` runs it; no page quotes it.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from api.batch_shapes import CreateBatch
from batch.files.local import LocalFileStore
from batch.intake.create import create
from batch.intake.upload import Upload, record
from batch.intake.validate import validate
from bench.report import at_most, option_parser, report, scratch_folder
from bench.servers import postgres_url
from store.models import DEFAULT_PROJECT_ID, Batch
from store.repositories import arrival as arrivals
from store.session import Database

CHAT = "/v1/chat/completions"
NUM_LINES = 50_000
LINE_BYTES = 4000
TARGET_S = 10.0


def line(number: int, *, good: bool) -> bytes:
    """One request of `LINE_BYTES` with a prompt of its own."""
    prompt = f"Question {number}: " + "why is the sky blue? " * 300
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "Answer briefly."}, {"role": "user"}],
        "max_tokens": 64,
    }
    shape: dict[str, Any] = {
        "custom_id": f"request-{number}",
        "method": "POST" if good else "GET",
        "url": CHAT,
        "body": body,
    }
    room = LINE_BYTES - len(orjson.dumps(shape)) - len(',"content":""')
    body["messages"][1]["content"] = prompt[:room]  # type: ignore[index]
    return orjson.dumps(shape) + b"\n"


async def lines(*, good: bool) -> AsyncIterator[bytes]:
    """The file, a hundred lines at a time."""
    for start in range(0, NUM_LINES, 100):
        yield b"".join(line(number, good=good) for number in range(start, start + 100))


async def submit(db: Database, store: LocalFileStore, *, good: bool) -> tuple[str, int]:
    """A batch over a stored file: (its id, the file's bytes)."""
    key = f"file-{'good' if good else 'bad'}"
    stored = await store.put(key, lines(good=good))
    async with db.unit_of_work() as session:
        await arrivals.announce(session, key)
        await record(session, Upload(key, "in.jsonl", "batch", stored, None), DEFAULT_PROJECT_ID)
        batch = await create(
            session,
            DEFAULT_PROJECT_ID,
            CreateBatch(input_file_id=key, endpoint=CHAT, completion_window="24h"),
        )
    return batch.id, stored.size_bytes


def peak_rss_bytes() -> int:
    """Most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def measure(url: str, folder: Path) -> dict[str, Any]:
    """Validate a good and a bad file."""
    db, store = Database(url), LocalFileStore(folder)
    good_id, num_bytes = await submit(db, store, good=True)
    bad_id, _ = await submit(db, store, good=False)
    before = peak_rss_bytes()
    wall, cpu = time.perf_counter(), time.process_time()
    assert await validate(db, store, good_id) == "in_progress"
    good_wall_s, good_cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    wall, cpu = time.perf_counter(), time.process_time()
    assert await validate(db, store, bad_id) == "failed"
    bad_wall_s, bad_cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    async with db.unit_of_work() as session:
        batch = await session.get_one(Batch, good_id)
        assert batch.num_total == NUM_LINES
    await db.dispose()
    return {
        "num_lines": NUM_LINES,
        "num_bytes": num_bytes,
        "valid_wall_s": round(good_wall_s, 3),
        "valid_cpu_s": round(good_cpu_s, 3),
        "every_line_bad_wall_s": round(bad_wall_s, 3),
        "every_line_bad_cpu_s": round(bad_cpu_s, 3),
        "peak_rss_growth_mib": round((peak_rss_bytes() - before) / 2**20, 1),
    }


def main() -> int:
    """Start a Postgres, migrate it, measure, report."""
    option_parser(__doc__).parse_args()
    with scratch_folder() as folder, postgres_url(folder) as url:
        measured = asyncio.run(measure(url, folder / "files"))
    targets = {"valid_wall_s": at_most(TARGET_S), "every_line_bad_wall_s": at_most(TARGET_S)}
    return report("validate", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
