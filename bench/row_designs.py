"""What Postgres pays for a line of a batch under several designs of its tables, side by side.

    python -m bench.row_designs

Rows are ingested, claimed and written by the statements of the product, as a dispatcher does it:
128 a claim, 256 a write, lines of 700 bytes. There is no engine and no dispatcher, so that nothing
but the server differs; `client` is what claims and writes cost on this side. Designs take turns,
and each has a new database. That of ranges is a bound: nothing in it comes back out of order, and
only one dispatcher takes rows.

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from bench.batches import record_batch
from bench.processes import postgres_cpu_s, postgres_pid
from bench.report import option_parser, report, scratch_folder
from bench.servers import postgres_url
from store.repositories import dispatcher as dispatchers
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult
from store.repositories.row import ClaimedRow, NewRow
from store.session import Database

NUM_ROWS = 10_000
CLAIM, WRITE = 128, 256
LINE = b"x" * 700
NUM_ROUNDS = 3

_BEFORE = (
    "ALTER TABLE row_results ADD CONSTRAINT before FOREIGN KEY (row_id) REFERENCES batch_rows (id)"
    " ON DELETE CASCADE"
)
_NO_BATCH_KEY = "ALTER TABLE row_results DROP CONSTRAINT fk_row_results_batch_id"
_NO_LEASED = "DROP INDEX ix_batch_rows_leased"
_NO_CUSTOM_ID = "DROP INDEX uq_batch_rows_custom_id"
_NO_FAILED = "DROP INDEX ix_row_results_failed"
_NO_CHECKS = (
    "ALTER TABLE batch_rows DROP CONSTRAINT ck_batch_rows_status,"
    " DROP CONSTRAINT ck_batch_rows_lease"
)
_ROOM = "ALTER TABLE batch_rows SET (fillfactor = 50)"
_NO_STATUS = (
    "DROP INDEX ix_batch_rows_claim", "DROP INDEX ix_batch_rows_suspects", _NO_LEASED, _ROOM,
    "CREATE INDEX ix_batch_rows_order ON batch_rows (batch_id, prefix_hash, line_no)",
)  # fmt: skip
_RANGES = (
    "CREATE TABLE ranges (batch_id text PRIMARY KEY, prefix_hash bigint DEFAULT -1,"
    " line_no int DEFAULT 0, dispatcher_id text)",
)

_COPY = (
    "CREATE TEMPORARY TABLE incoming (row_id bigint, status text, line bytea, prompt int,"
    " cached int, completion int, reasoning int, place int) ON COMMIT DELETE ROWS",
)

DESIGNS: dict[str, tuple[str, ...]] = {
    "results with a key to their rows": (_BEFORE,),
    "as it is": (),
    "results without any key": (_NO_BATCH_KEY,),
    "rows without the index of leased ones": (_NO_LEASED,),
    "rows without the index of custom ids": (_NO_CUSTOM_ID,),
    "rows without checks": (_NO_CHECKS,),
    "without all of these": (_NO_BATCH_KEY, _NO_LEASED, _NO_CUSTOM_ID, _NO_FAILED, _NO_CHECKS),
    "no index names the status, room for updates on the page": _NO_STATUS,
    "leases by range: no update at the claim": _RANGES,
    "results by COPY, in binary": _COPY,
}

_CLAIM_RANGE = text(
    """
    WITH picked AS (
      SELECT r.id, r.batch_id, r.custom_id, r.offset_bytes, r.length_bytes, r.attempt,
             r.num_losses, r.num_refusals, r.num_tokens, r.prefix_hash, r.line_no
      FROM ranges g JOIN batch_rows r ON r.batch_id = g.batch_id
        AND (r.prefix_hash, r.line_no) > (g.prefix_hash, g.line_no)
      WHERE g.batch_id = :batch_id AND r.status = 'pending'
      ORDER BY r.prefix_hash, r.line_no LIMIT :n
    ), last AS (
      SELECT prefix_hash, line_no FROM picked ORDER BY prefix_hash DESC, line_no DESC LIMIT 1
    ), moved AS (
      UPDATE ranges g SET prefix_hash = l.prefix_hash, line_no = l.line_no, dispatcher_id = 'd'
      FROM last l WHERE g.batch_id = :batch_id
    )
    SELECT id, batch_id, custom_id, offset_bytes, length_bytes, attempt, num_losses,
           num_refusals, num_tokens FROM picked
    """
)


_WRITE_COPIED = text(
    re.sub(
        r"WITH incoming AS \(.*?\), fenced AS", "WITH fenced AS", results._WRITE.text, flags=re.S
    )
)


async def _write_copied(session: AsyncSession, new: Sequence[NewResult]) -> None:
    """What `results.write` does, with the results in a table that COPY fills."""
    await session.execute(results._LOCK, {"ids": sorted({one.batch_id for one in new})})
    driver: Any = (await (await session.connection()).get_raw_connection()).driver_connection
    async with (
        driver.cursor() as cursor,
        cursor.copy("COPY incoming FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["int8", "text", "bytea", *["int4"] * 5])
        for place, one in enumerate(new):
            await copy.write_row(
                (one.row_id, one.status, one.line, one.prompt_tokens, one.cached_tokens,
                 one.completion_tokens, one.reasoning_tokens, place)
            )  # fmt: skip
    await session.execute(_WRITE_COPIED, {"held": "leased", "dispatcher_id": "disp_bench"})


async def _rows() -> AsyncIterator[NewRow]:
    for number in range(NUM_ROWS):
        yield NewRow(number + 1, f"request-{number}", number * 2001, 2000, number % 7)


async def _add_batch(database: Database) -> str:
    async with database.unit_of_work() as session:
        batch = await record_batch(session, "file-input", size_bytes=1, sha256="0" * 64)
        await rows.ingest(session, batch.id, _rows())
        await session.execute(
            text("UPDATE batches SET status = 'in_progress', num_total = :n"), {"n": NUM_ROWS}
        )
        await dispatchers.acquire(session, "disp_bench", "http://engine")
        return batch.id


async def _claim(database: Database, batch_id: str, *, ranges: bool) -> list[ClaimedRow]:
    async with database.unit_of_work() as session:
        if ranges:
            found = await session.execute(_CLAIM_RANGE, {"batch_id": batch_id, "n": CLAIM})
            return list(map(ClaimedRow._make, found))
        return await rows.claim(session, "disp_bench", {batch_id: CLAIM}, claim_id="1")


async def _write(database: Database, claimed: Sequence[ClaimedRow], changes: Sequence[str]) -> None:
    new = [NewResult(one.id, one.batch_id, "succeeded", LINE, 10, 0, 10) for one in claimed]
    async with database.unit_of_work() as session:
        if changes is _COPY:
            await _write_copied(session, new)
            return
        ranges = changes is _RANGES
        await results.write(session, new, dispatcher_id=None if ranges else "disp_bench")


async def _round(url: str, changes: Sequence[str]) -> dict[str, float]:
    """CPU of the server per row for each of the three."""
    database = Database(url, pool_size=1, ask_first=False)
    spent = {"ingest": 0.0, "claim": 0.0, "write": 0.0, "client": 0.0}
    async with database.unit_of_work() as session:
        for statement in changes:
            await session.execute(text(statement))
    postgres = await postgres_pid(database)
    before = postgres_cpu_s(postgres)
    batch_id = await _add_batch(database)
    ranges = changes is _RANGES
    if ranges:
        async with database.unit_of_work() as session:
            await session.execute(
                text("INSERT INTO ranges (batch_id) VALUES (:id)"), {"id": batch_id}
            )
    spent["ingest"] = (after := postgres_cpu_s(postgres)) - before
    left: list[ClaimedRow] = []
    while True:
        client_s = time.process_time()
        claimed = await _claim(database, batch_id, ranges=ranges)
        spent["client"] += time.process_time() - client_s
        left += claimed
        now = postgres_cpu_s(postgres)
        spent["claim"] += now - after
        client_s = time.process_time()
        while len(left) >= WRITE or (left and len(claimed) < CLAIM):
            await _write(database, left[:WRITE], changes)
            del left[:WRITE]
        spent["client"] += time.process_time() - client_s
        after = postgres_cpu_s(postgres)
        spent["write"] += after - now
        if not claimed:
            break
    await database.dispose()
    return {part: seconds / NUM_ROWS * 1e6 for part, seconds in spent.items()}


async def _in_own_database(url: str, changes: Sequence[str]) -> dict[str, float]:
    """A round in a copy of the migrated database."""
    server = create_async_engine(url.replace("/bench", "/postgres"), isolation_level="AUTOCOMMIT")
    async with server.connect() as connection:
        await connection.execute(text("CREATE DATABASE design TEMPLATE bench"))
        try:
            return await _round(url.replace("/bench", "/design"), changes)
        finally:
            await connection.execute(text("DROP DATABASE design WITH (FORCE)"))
            await connection.execute(text("CHECKPOINT"))
            await server.dispose()


def measure(num_rounds: int) -> dict[str, Any]:
    """Medians over rounds, in microseconds a row."""
    told: dict[str, list[dict[str, float]]] = {name: [] for name in DESIGNS}
    with scratch_folder() as folder, postgres_url(folder) as url:
        for _ in range(num_rounds):
            for name, changes in DESIGNS.items():
                told[name].append(asyncio.run(_in_own_database(url, changes)))
    return {
        name: {part: round(statistics.median(one[part] for one in rounds), 1) for part in rounds[0]}
        for name, rounds in told.items()
    }


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    options = parser.parse_args()
    return report("row_designs", measure(options.rounds))


if __name__ == "__main__":
    sys.exit(main())
