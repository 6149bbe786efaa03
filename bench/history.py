"""What history costs: 100,000 ended batches with 500,000 lines behind a live one.

    python -m bench.history

`GET /batches/{id}` and `GET /batches` of a live batch through the gateway, and one claim of 128
rows, in an empty database and in one with that history. Targets: 10 ms for the two reads, a claim
as fast as in the empty one within a third, all at the median; the 95th percentile is what the
machine's other load makes of it. The removal of history is measured beside it: batches a second,
and its longest transaction.

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from sqlalchemy import text

from batch.removal import STEP_ROWS
from bench.report import at_most, at_share, environment, option_parser, report, scratch_folder
from bench.servers import Server, gateway_within, postgres_url, valkey_url
from store.models import DEFAULT_PROJECT_ID
from store.repositories import retention
from store.repositories import row as rows
from store.session import Database

NUM_BATCHES = 100_000
ROWS_A_BATCH = 5
LIVE_ROWS = 5000
CLAIM_ROWS = 128
NUM_READS = 200
NUM_CLAIMS = 30
NUM_REMOVED = 200
READ_TARGET_MS = 10.0
CLAIM_TARGET_RATIO = 1.33

_HISTORY = (
    """
    INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256, storage_key)
    SELECT kind || n, :project, purpose, 'x.jsonl', 5000, '', kind || n
    FROM generate_series(1, :num) n,
         (VALUES ('file-in', 'batch'), ('file-out', 'batch_output')) k(kind, purpose)
    """,
    """
    INSERT INTO batches (id, project_id, endpoint, completion_window, input_file_id,
                         output_file_id, model, status, num_total, num_completed, num_results,
                         created_at, expires_at, in_progress_at, finalizing_at, completed_at)
    SELECT 'batch_old' || n, :project, '/v1/chat/completions', '24h', 'file-in' || n,
           'file-out' || n, 'm', 'completed', 40, 40, 40, at, at + interval '1 day',
           at, at + interval '1 minute', at + interval '1 minute'
    FROM (SELECT n, now() - interval '6 days' + n * interval '5 seconds' AS at
          FROM generate_series(1, :num) n) one
    """,
    """
    INSERT INTO batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes, status)
    SELECT 'batch_old' || n, line, 'r' || line, line * 1000, 999, 'succeeded'
    FROM generate_series(1, :num) n, generate_series(1, :lines) line
    """,
    """
    INSERT INTO row_results (row_id, batch_id, seq, succeeded, line)
    SELECT id, batch_id, line_no, true, convert_to(repeat('answer ', 70), 'UTF8')
    FROM batch_rows WHERE status = 'succeeded'
    """,
    """
    INSERT INTO batch_events (batch_id, event)
    SELECT 'batch_old' || n, event FROM generate_series(1, :num) n,
           unnest(ARRAY['created', 'in_progress', 'finalizing', 'completed']) event
    """,
)
_LIVE = (
    """
    INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256, storage_key)
    VALUES ('file-live', :project, 'batch', 'x.jsonl', 5000000, '', 'file-live')
    """,
    """
    INSERT INTO batches (id, project_id, endpoint, completion_window, input_file_id, model, status,
                         num_total, expires_at, in_progress_at)
    VALUES ('batch_live', :project, '/v1/chat/completions', '24h', 'file-live', 'm', 'in_progress',
            :lines, now() + interval '1 day', now())
    """,
    """
    INSERT INTO batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes)
    SELECT 'batch_live', line, 'r' || line, line * 1000, 999 FROM generate_series(1, :lines) line
    """,
    """
    INSERT INTO dispatchers (id, engine_url, heartbeat_at) VALUES ('disp_1', 'http://e', now())
    """,
)


async def fill(database: Database, statements: tuple[str, ...], **values: object) -> None:
    """Insert, then let the planner know and the disk rest."""
    async with database.unit_of_work() as session:
        for one in statements:
            used = {name: value for name, value in values.items() if f":{name}" in one}
            await session.execute(text(one), used)
    async with database.engine.execution_options(
        isolation_level="AUTOCOMMIT"
    ).connect() as connection:
        await connection.execute(text("VACUUM ANALYZE"))
        await connection.execute(text("CHECKPOINT"))


async def timed_ms(ask: Callable[[], Awaitable[object]], times: int) -> list[float]:
    """How long each of so many took, sorted; the first few warm caches up and do not count."""
    took: list[float] = []
    for number in range(-5, times):
        began_s = time.perf_counter()
        await ask()
        if number >= 0:
            took.append(1000 * (time.perf_counter() - began_s))
    return sorted(took)


async def measure(database: Database, served: Server) -> dict[str, float]:
    """The two reads and the claim, as of now."""
    headers = {"authorization": f"Bearer {served.key}"}
    async with httpx.AsyncClient(base_url=f"{served.url}/v1", headers=headers) as client:

        async def get(path: str) -> None:
            (await client.get(path)).raise_for_status()

        one = await timed_ms(lambda: get("/batches/batch_live"), NUM_READS)
        page = await timed_ms(lambda: get("/batches"), NUM_READS)

    async def claim() -> None:
        async with database.unit_of_work() as session:
            claimed = await rows.claim(session, "disp_1", {"batch_live": CLAIM_ROWS})
            if len(claimed) != CLAIM_ROWS:
                raise RuntimeError(f"{len(claimed)} rows claimed")

    claims = await timed_ms(claim, NUM_CLAIMS)
    return {
        "get_p50_ms": round(at_share(one, 0.5), 2),
        "get_p95_ms": round(at_share(one, 0.95), 2),
        "list_p50_ms": round(at_share(page, 0.5), 2),
        "list_p95_ms": round(at_share(page, 0.95), 2),
        "claim_p50_ms": round(at_share(claims, 0.5), 2),
    }


async def removal(database: Database) -> dict[str, float]:
    """How fast history goes, in the steps of `batch.finish.retain.retire`."""
    longest_s, began_s = 0.0, time.perf_counter()
    for _ in range(NUM_REMOVED):
        async with database.unit_of_work() as session:
            batch_id = await retention.oldest_ended(session, older_than_s=0)
        if batch_id is None:
            raise RuntimeError("history is shorter than what is to be removed")
        for limit in (STEP_ROWS, 0):
            step_s = time.perf_counter()
            async with database.unit_of_work() as session:
                if limit:
                    await retention.forget_rows(session, batch_id, limit=limit)
                else:
                    await retention.forget_batch(session, batch_id)
            longest_s = max(longest_s, time.perf_counter() - step_s)
    took_s = time.perf_counter() - began_s
    return {
        "removed_batches_per_s": round(NUM_REMOVED / took_s, 1),
        "longest_removal_ms": round(1000 * longest_s, 1),
    }


async def run(url: str, broker: str, home: Path) -> dict[str, float]:
    """The same figures twice, before and after history."""
    database = Database(url)
    await fill(database, _LIVE, project=DEFAULT_PROJECT_ID, lines=2 * LIVE_ROWS)
    async with gateway_within(database, url, broker, home) as served:
        empty = await measure(database, served)
        history = {"project": DEFAULT_PROJECT_ID, "num": NUM_BATCHES, "lines": ROWS_A_BATCH}
        await fill(database, _HISTORY, **history)
        full = await measure(database, served)
    gone = await removal(database)
    await database.dispose()
    return {
        **{f"empty_{name}": value for name, value in empty.items()},
        **{f"history_{name}": value for name, value in full.items()},
        "claim_ratio": round(full["claim_p50_ms"] / empty["claim_p50_ms"], 2),
        **gone,
    }


def main() -> int:
    option_parser(__doc__).parse_args()
    load = environment()["load_1min"]
    with scratch_folder() as home, postgres_url(home) as url, valkey_url(home) as broker:
        measured = asyncio.run(run(url, broker, home))
    targets = {
        "history_get_p50_ms": at_most(READ_TARGET_MS),
        "history_list_p50_ms": at_most(READ_TARGET_MS),
        "claim_ratio": at_most(CLAIM_TARGET_RATIO),
    }
    named = {"num_batches": NUM_BATCHES, "num_rows": NUM_BATCHES * ROWS_A_BATCH, "load": load}
    return report("history", {**named, **measured}, targets)


if __name__ == "__main__":
    sys.exit(main())
