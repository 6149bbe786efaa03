"""Server time of the dashboard's pages with 10,000 batches and 1,000,000 rows.

    python -m bench.dashboard_pages [--only overview]

Ten batches have 50,000 rows, the others about 50; two of the large ones are live. Beside them are
100,000 entries of the audit log and 50,000 deliveries of webhooks. Each page is asked for one after
the other, with nobody else there; so is the search, which looks through all. The history is full:
a point for every step of every length. Target: 300 ms at the 95th percentile of every page. Beside
it stands the processor time that gateway, client and Postgres spend on one: about the same however
busy the machine is. `--only overview` measures the pages whose names begin so, and writes nothing.

Quoted in docs/dashboard.md.
"""

from __future__ import annotations

import asyncio
import sys
import time

import httpx
from sqlalchemy import text

from bench.processes import postgres_cpu_s, postgres_pid
from bench.report import at_most, option_parser, report, scratch_folder
from bench.servers import postgres_url
from store.models import DEFAULT_PROJECT_ID
from store.session import Database
from tests.fixtures.operator_site import operator_site

NUM_BATCHES, NUM_LARGE, LARGE_ROWS, SMALL_ROWS = 10_000, 10, 50_000, 50
NUM_READS = 40
TARGET_MS = 300.0

_SIZE = f"CASE WHEN n <= {NUM_LARGE} THEN {LARGE_ROWS} ELSE {SMALL_ROWS} END"
_DONE = "CASE WHEN n <= 2 THEN 25000 ELSE size END"
_FILL = (
    """
    INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256, storage_key)
    SELECT kind || n, :project, purpose, 'questions-' || n || '.jsonl', 5000, '', kind || n
    FROM generate_series(1, :num) n,
         (VALUES ('file-in', 'batch'), ('file-out', 'batch_output')) k(kind, purpose)
    """,
    f"""
    INSERT INTO batches (id, project_id, endpoint, completion_window, input_file_id, metadata,
                         output_file_id, model, status, num_total, num_completed, num_failed,
                         num_results, created_at, expires_at, in_progress_at, finalizing_at,
                         completed_at)
    SELECT 'batch_' || n, :project, '/v1/chat/completions', '24h', 'file-in' || n,
           jsonb_build_object('team', 'team-' || n % 40),
           CASE WHEN n > 2 THEN 'file-out' || n END, 'm',
           CASE WHEN n > 2 THEN 'completed' ELSE 'in_progress' END, size, {_DONE} - size / 50,
           size / 50, {_DONE}, at, statement_timestamp() + interval '1 day', at,
           CASE WHEN n > 2 THEN at + interval '1 minute' END,
           CASE WHEN n > 2 THEN at + interval '2 minutes' END
    FROM (SELECT n, {_SIZE} AS size, statement_timestamp() - n * interval '50 seconds' AS at
          FROM generate_series(1, :num) n) one
    """,
    f"""
    INSERT INTO batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes, status)
    SELECT 'batch_' || n, line, 'question-' || n || '-' || line, line * 1000, 999,
           CASE WHEN n <= 2 AND line > 25000 THEN 'pending'
                WHEN line % 50 = 0 THEN 'errored' ELSE 'succeeded' END
    FROM generate_series(1, :num) n, generate_series(1, {_SIZE}) line
    """,
    """
    INSERT INTO row_results (row_id, batch_id, seq, succeeded, line, prompt_tokens,
                             completion_tokens)
    SELECT id, batch_id, line_no, status = 'succeeded',
           convert_to('{"custom_id": "x", "response": null, "error": {"code": "c", "message": "'
                      || repeat('word ', 60) || '"}}', 'UTF8'), 100, 60
    FROM batch_rows WHERE status <> 'pending'
    """,
    """
    INSERT INTO batch_events (batch_id, event)
    SELECT 'batch_' || n, event FROM generate_series(1, :num) n,
           unnest(ARRAY['created', 'in_progress', 'finalizing', 'completed']) event
    """,
    """
    INSERT INTO usage (project_id, key_id, model, request_class, day, num_requests, prompt_tokens,
                       cached_tokens, completion_tokens)
    SELECT :project, 'key_' || k, 'm', class, current_date - d, 10, 1000, 10, 600
    FROM generate_series(1, :num / 500) k, generate_series(0, 89) d,
         unnest(ARRAY['online', 'flex', 'offline']) class
    """,
    """
    INSERT INTO audit_log (id, organization_id, project_id, action, target_id, source, actor_name,
                           created_at)
    SELECT 'audit_log-' || n, organization_id, p.id,
           CASE WHEN n % 3 = 0 THEN 'batch.created' ELSE 'login.succeeded' END, 'batch_' || n / 10,
           'dashboard', 'somebody', statement_timestamp() - n * interval '5 seconds'
    FROM projects p, generate_series(10 * :num, 1, -1) n WHERE p.id = :project
    """,
    """
    INSERT INTO webhook_endpoints (id, project_id, name, url, event_types, secret, updated_at)
    SELECT 'wh_' || n, :project, 'receiver ' || n, 'https://example.com/' || n,
           ARRAY['batch.completed'], 'secret', statement_timestamp()
    FROM generate_series(1, 5) n
    """,
    """
    INSERT INTO webhook_deliveries (id, endpoint_id, batch_event_id, event_id, event_type, batch_id,
                                    event_at, status, attempts, next_at, created_at, ended_at)
    SELECT 'msg_' || n || '_' || e.id, 'wh_' || n, e.id, 'evt_' || e.id, 'batch.completed',
           e.batch_id, e.created_at, CASE WHEN e.id % 100 = 0 THEN 'pending' ELSE 'delivered' END,
           1, e.created_at, e.created_at, CASE WHEN e.id % 100 <> 0 THEN e.created_at END
    FROM batch_events e, generate_series(1, 5) n WHERE e.event = 'completed'
    """,
    """
    UPDATE projects SET live_batches = 100, batches_per_hour = 1000, stored_bytes = 1000000000,
                        batch_enqueued_token_limit = 100000000 WHERE id = :project
    """,
)

_FILL_HISTORY = """
    INSERT INTO history_points (step_s, began_at, series, subject, figures)
    SELECT step_s, began_at - n * step_s * interval '1 second', series, subject, figures
    FROM history_points, generate_series(1, CASE step_s WHEN 60 THEN 9 WHEN 600 THEN 11 END) n
    ON CONFLICT DO NOTHING
    """
"""The site has every tenth or twelfth of the long steps."""

PAGES = {
    "overview": "/",
    "overview, 3 hours": "/?window=3h",
    "overview, 24 hours": "/?window=24h",
    "overview, 14 days": "/?window=14d",
    "scheduler": "/scheduler",
    "isolation": "/isolation",
    "isolation, 14 days": "/isolation?window=14d",
    "batches": "/batches",
    "batches, live": "/batches?group=live",
    "batches, page 100": "/batches?after=batch_5000",
    "batches, largest": "/batches?group=completed&model=m&order=largest",
    "batches, due, page 100": "/batches?order=due&after=batch_5000",
    "new batch": "/batches/new",
    "search by file": "/batches?search=questions-7777.jsonl",
    "search by metadata": "/batches?search=team-39",
    "search by custom id": "/batches?search=question-3-49999",
    "search, nothing found": "/batches?search=nowhere-to-be-found",
    "large live batch": "/batches/batch_1",
    "large ended batch": "/batches/batch_5",
    "rows of a large batch": "/batches/batch_5/rows",
    "rows, failed, late": "/batches/batch_5/rows?group=failed&after=49000",
    "rows by custom id": "/batches/batch_5/rows?search=question-5-49",
    "one row": "/batches/batch_5/rows?line=49999",
    "playground": "/playground",
    "usage": "/usage",
    "usage, 90 days": "/usage?days=90",
    "projects": "/projects",
    "project": f"/projects/{DEFAULT_PROJECT_ID}",
    "webhooks": "/webhooks",
    "audit": "/audit",
    "audit, a rare act": "/audit?action=engine.named",
    "engines": "/engines",
}


async def measure(
    url: str, pages: dict[str, str]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Milliseconds of each reading of a page, and the mean processor time of one."""
    database = Database(url)
    async with database.unit_of_work() as session:
        for statement in _FILL:
            wanted = {"project": DEFAULT_PROJECT_ID, "num": NUM_BATCHES}
            given = {name: value for name, value in wanted.items() if f":{name}" in statement}
            await session.execute(text(statement), given)
    async with database.engine.connect() as connection:
        bare = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await bare.execute(text("VACUUM ANALYZE"))
    postgres = await postgres_pid(database)

    def spent_so_far_s() -> float:
        return time.process_time() + postgres_cpu_s(postgres)

    took: dict[str, list[float]] = {}
    spent: dict[str, float] = {}
    async with operator_site(database) as site, site.admin() as client:
        async with database.unit_of_work() as session:
            await session.execute(text(_FILL_HISTORY))
            await session.execute(text("ANALYZE history_points"))
        client.timeout = httpx.Timeout(120)
        for name, path in pages.items():
            reply = await client.get(f"/admin{path}")
            assert reply.status_code == 200, (name, reply.status_code)
            took[name], spent_s = [], spent_so_far_s()
            for _ in range(NUM_READS):
                began_s = time.perf_counter()
                await client.get(f"/admin{path}")
                took[name].append(1000 * (time.perf_counter() - began_s))
            spent[name] = 1000 * (spent_so_far_s() - spent_s) / NUM_READS
            print(f"  {name}: {sorted(took[name])[NUM_READS // 2]:.0f} ms", flush=True)
    await database.dispose()
    return took, spent


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--only", default="", help="names of pages begin with this")
    only = parser.parse_args().only
    pages = {name: path for name, path in PAGES.items() if name.startswith(only)}
    with scratch_folder() as folder, postgres_url(folder) as url:
        took, spent = asyncio.run(measure(url, pages))
    measured: dict[str, object] = {}
    targets = {}
    for name, values in took.items():
        values.sort()
        word = name.replace(", ", "_").replace(" ", "_")
        measured[f"{word}_p50_ms"] = round(values[len(values) // 2], 1)
        measured[f"{word}_p95_ms"] = round(values[int(0.95 * len(values)) - 1], 1)
        measured[f"{word}_cpu_ms"] = round(spent[name], 1)
        targets[f"{word}_p95_ms"] = at_most(TARGET_MS)
    return report("dashboard_pages", measured, targets, keep=not only)


if __name__ == "__main__":
    sys.exit(main())
