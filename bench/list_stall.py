"""What an open stream sees of others that read long lists: the longest stalls between its tokens.

    python -m bench.list_stall

A database of 1,000,000 rows, 100,000 batches, of which the newest 100 have failed with as many
errors as are kept, and 10,000 files. One stream of a fake engine, a token every few milliseconds,
is read by a process of its own; first alone, then while callers ask for every list without pause.
A stall is what a gap between two pieces of the stream has beyond the engine's pace.

Quoted in docs/benchmark-gateway.md.
"""

from __future__ import annotations

import asyncio
import http.client
import statistics
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import aiohttp
import orjson
from sqlalchemy import text

from batch.intake.check import MAX_REPORTED_FAULTS, FileCheck
from bench.gateway_compare.load import body
from bench.report import at_most, at_share, option_parser, report, scratch_folder
from bench.servers import Server, one_gateway
from engine_adapter.client.base import CHAT_PATH
from store.models import DEFAULT_PROJECT_ID
from store.session import Database

NUM_BATCHES, NUM_FAILED, NUM_LIVE, NUM_FILES = 100_000, 100, 20, 10_000
ENDED_ROWS, LIVE_ROWS = 5, 25_030
TOKEN_MS, NUM_TOKENS, NUM_CALLERS = 5, 12_000, 3
TARGETS = {"beside_stall_p999_ms": at_most(50.0)}

_FILL = (
    """
    INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256, storage_key,
                       created_at)
    SELECT 'file-' || n, :project, 'batch', 'input-' || n || '.jsonl', 1000, repeat('0', 64),
           'file-' || n, statement_timestamp() - make_interval(secs => n)
    FROM generate_series(1, :num_files) n
    """,
    """
    INSERT INTO batches (id, project_id, endpoint, completion_window, input_file_id, model, status,
                         errors, num_total, num_completed, created_at, expires_at, in_progress_at,
                         finalizing_at, completed_at, failed_at)
    SELECT 'batch_' || n, :project, '/v1/chat/completions', '24h', 'file-' || (n % :num_files + 1),
           'fake-model', status, CASE WHEN status = 'failed' THEN CAST(:errors AS jsonb) END,
           CASE status WHEN 'in_progress' THEN :live_rows WHEN 'failed' THEN 0 ELSE :ended_rows END,
           CASE status WHEN 'completed' THEN :ended_rows ELSE 0 END,
           at, at + interval '1 day', at, at, at, at
    FROM (SELECT n, statement_timestamp() - make_interval(secs => n) AS at,
                 CASE WHEN n <= :num_failed THEN 'failed'
                      WHEN n <= :num_failed + :num_live THEN 'in_progress'
                      ELSE 'completed' END AS status
          FROM generate_series(1, :num_batches) n) made
    """,
    """
    INSERT INTO batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes, status)
    SELECT b.id, n, 'request-' || n, n * 100, 100,
           CASE b.status WHEN 'completed' THEN 'succeeded' ELSE 'pending' END
    FROM batches b CROSS JOIN LATERAL generate_series(1, b.num_total) n
    """,
    "ANALYZE",
)


def maximal_errors() -> bytes:
    """The errors of a file whose every line is as wrong as can be."""
    bad = orjson.dumps({"custom_id": "x", "body": {"model": "m", "\u00e9" * 10_000: 1}})
    check = FileCheck(CHAT_PATH)
    for _ in range(MAX_REPORTED_FAULTS):
        check.feed(bad + b"\n")
    return orjson.dumps([fault.as_wire() for fault in check.finish().faults])


def fill(url: str) -> None:
    """Put everything into the database."""

    async def run() -> None:
        database = Database(url)
        values = {
            "project": DEFAULT_PROJECT_ID, "errors": maximal_errors().decode(),
            "num_files": NUM_FILES, "num_batches": NUM_BATCHES, "num_failed": NUM_FAILED,
            "num_live": NUM_LIVE, "live_rows": LIVE_ROWS, "ended_rows": ENDED_ROWS,
        }  # fmt: skip
        async with database.unit_of_work() as session:
            for statement in _FILL:
                asked = text(statement)
                await session.execute(asked, {k: values[k] for k in asked._bindparams})
        await database.dispose()

    asyncio.run(run())


def paths() -> list[str]:
    """Every list, the longest page of each, and the single reads whose answers are long."""
    live = f"batch_{NUM_FAILED + 1}"
    return [
        "/v1/files",
        "/v1/files?limit=10000&order=asc",
        "/v1/batches?limit=100",
        f"/v1/batches?limit=100&after=batch_{NUM_BATCHES // 2}",
        "/v1/batches/batch_1",
        f"/v1/batches/{live}",
        f"/v1/batches/{live}/results?limit=1000",
        "/v1/models",
        "/v1/webhook_endpoints?limit=100",
        "/v1/organization/projects?limit=100",
        "/v1/organization/audit_logs?limit=100",
        "/v1/organization/admin_api_keys?limit=100",
        f"/v1/organization/usage/completions?start_time={int(time.monotonic())}",
        "/openapi.json",
        "/metrics",
    ]


def stalls_ms(url: str, key: str, num_tokens: int) -> list[float]:
    """Read one stream; what each gap has beyond the engine's pace. A process of its own."""
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    order = body(f"fake:tokens={num_tokens} fake:token_ms={TOKEN_MS}", stream=True)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", orjson.dumps(order), headers)
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    found = []
    reply.read1(65536)
    last_s = time.perf_counter()
    while reply.read1(65536):
        now_s = time.perf_counter()
        found.append(max(0.0, (now_s - last_s) * 1000 - TOKEN_MS))
        last_s = now_s
    return found


async def hammer(gateway: Server, took_ms: dict[str, list[float]]) -> None:
    """Ask for one list after the other, for ever."""
    headers = {"authorization": f"Bearer {gateway.key}"}
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as client:
        while True:
            for path in paths():
                started_s = time.perf_counter()
                async with client.get(gateway.url + path) as reply:
                    assert reply.status in (200, 403), (path, reply.status)
                    async for _ in reply.content.iter_any():
                        pass
                took_ms[path].append((time.perf_counter() - started_s) * 1000)


async def measure(gateway: Server) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    took_ms: dict[str, list[float]] = defaultdict(list)
    with ProcessPoolExecutor(1) as pool:
        alone = await loop.run_in_executor(
            pool, stalls_ms, gateway.url, gateway.key, NUM_TOKENS // 4
        )
        async with asyncio.TaskGroup() as group:
            callers = [group.create_task(hammer(gateway, took_ms)) for _ in range(NUM_CALLERS)]
            beside = await loop.run_in_executor(
                pool, stalls_ms, gateway.url, gateway.key, NUM_TOKENS
            )
            for caller in callers:
                caller.cancel()
    figures: dict[str, Any] = {
        "num_rows": NUM_LIVE * LIVE_ROWS + (NUM_BATCHES - NUM_FAILED - NUM_LIVE) * ENDED_ROWS,
        "num_batches": NUM_BATCHES,
        "num_files": NUM_FILES,
        "num_reads": sum(map(len, took_ms.values())),
    }
    for name, found in (("alone", alone), ("beside", beside)):
        for words, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("worst", 1.0)):
            figures[f"{name}_stall_{words}_ms"] = round(at_share(found, share), 1)
    for path, took in took_ms.items():
        figures[f"median_ms {path.split('?start')[0]}"] = round(statistics.median(took), 1)
    return figures


def main() -> int:
    option_parser(__doc__).parse_args()
    with scratch_folder() as folder, one_gateway(folder, fill) as gateway:
        measured = asyncio.run(measure(gateway))
    return report("list_stall", measured, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
