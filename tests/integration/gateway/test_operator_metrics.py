"""What an operator alerts on: targets met and missed, batches that will be late, workers, disk."""

from __future__ import annotations

import re

from sqlalchemy import text

from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line
from tests.integration.gateway.conftest import MODEL, Online


async def scraped(online: Online) -> dict[str, float]:
    async with online.http() as http:
        said = (await http.get("/metrics")).text
    return {n: float(v) for n, v in re.findall(r"^((?:coserve|process)_\S+) (\S+)$", said, re.M)}


async def test_streams_are_judged_by_the_targets_of_their_engine(online: Online) -> None:
    online.engine.report = {"slo": {"ttft_s": 30.0, "tbt_s": 0.001}}
    await online.app.state.engines.probe()
    async with online.http() as http:
        body = online.chat("fake:tokens=5 fake:token_ms=20", stream=True)
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
    found = await scraped(online)
    assert found[f'coserve_target_met_total{{model="{MODEL}",of="ttft"}}'] == 1
    assert found[f'coserve_target_missed_total{{model="{MODEL}",of="ttft"}}'] == 0
    late = found[f'coserve_target_missed_total{{model="{MODEL}",of="tbt"}}']
    assert late == 4, "five tokens, each read for itself: four gaps"
    labels = f'model="{MODEL}",request_class="online"'
    assert found[f"coserve_tbt_seconds_count{{{labels}}}"] == 4
    assert found[f"coserve_tbt_seconds_sum{{{labels}}}"] >= 0.08


async def test_batches_are_counted_and_late_ones_are_told(
    online: Online, database: Database
) -> None:
    bench = Bench(database)
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(4)])
    found = await scraped(online)
    assert found['coserve_batches{status="in_progress"}'] == 1
    assert found['coserve_batches{status="expired"}'] == 0
    assert found["coserve_batch_predicted_late_batches"] == 0, "nothing was measured"
    # A hundred seconds for each row, and a window that ends in a minute.
    async with database.unit_of_work() as session:
        for change in (
            "UPDATE batches SET num_total = 40, num_completed = 9, num_results = 9, model = :model,"
            " in_progress_at = statement_timestamp() - interval '900 seconds',"
            " expires_at = statement_timestamp() + interval '60 seconds' WHERE id = :id",
            "UPDATE batch_rows SET status = 'succeeded' WHERE batch_id = :id AND :model <> ''",
            "INSERT INTO batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes,"
            " status) SELECT :id, n, 'more-' || n, 0, 1, 'succeeded' FROM generate_series(5, 40) n"
            " WHERE :model <> ''",
            "INSERT INTO row_results (row_id, batch_id, seq, succeeded, line, created_at)"
            " SELECT r.id, :id, r.line_no, true, '{}',"
            " statement_timestamp() - make_interval(secs => 100 * (9 - r.line_no))"
            " FROM batch_rows r WHERE r.batch_id = :id AND r.line_no <= 9 AND :model <> ''",
        ):
            await session.execute(text(change), {"id": batch_id, "model": MODEL})
    assert (await scraped(online))["coserve_batch_predicted_late_batches"] == 1


async def test_disk_and_process_are_told(online: Online) -> None:
    found = await scraped(online)
    total, free = (found[f'coserve_disk_bytes{{state="{word}"}}'] for word in ("total", "free"))
    assert 0 < free <= total
    assert found["process_resident_memory_bytes"] > 0
    assert found["process_open_fds"] > 0
