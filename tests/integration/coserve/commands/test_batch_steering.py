"""`coserve batch pause|resume|priority|retry` against the real gateway."""

from __future__ import annotations

from pathlib import Path

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from store.session import Database
from tests.fixtures.batches import end_window, events_of, read_batch
from tests.fixtures.live_gateway import Api
from tests.integration.coserve.commands.test_batch import coserve_batch, line


async def test_steering_and_retrying(api: Api, database: Database, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(line("a") + b"\n" + line("b"))
    submitted = await coserve_batch(api, "submit", str(path))
    batch_id = submitted.output.split(":")[0]
    await validate(database, api.app.state.file_store, batch_id)

    paused = await coserve_batch(api, "pause", batch_id)
    assert paused.exit_code == 0, paused.output
    assert f"{batch_id}: in_progress, 0 completed and 0 failed of 2" in paused.output
    assert "waiting: paused" in paused.output
    resumed = await coserve_batch(api, "resume", batch_id)
    assert "waiting: engine_unavailable" in resumed.output
    assert (await coserve_batch(api, "priority", batch_id, "9")).exit_code == 0
    assert (await read_batch(database, batch_id)).priority == 9
    assert (await events_of(database, batch_id))[2:] == ["paused", "resumed", "priority_changed"]

    refused = await coserve_batch(api, "retry", batch_id)
    assert refused.exit_code == 1
    assert "Cannot retry a batch with status 'in_progress'." in refused.output
    await end_window(database, batch_id)
    await finalize(database, api.app.state.file_store, batch_id)
    retried = await coserve_batch(api, "retry", batch_id)
    assert retried.exit_code == 0, retried.output
    assert f"runs what {batch_id} left unanswered" in retried.output
    assert "0 completed and 0 failed of 2" in retried.output
    again = await coserve_batch(api, "pause", batch_id)
    assert (again.exit_code, "status 'expired'" in again.output) == (1, True)
