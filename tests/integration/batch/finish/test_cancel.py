"""Cancel: at once, as often as one likes, and not after the end."""

from __future__ import annotations

import pytest

from api.batch_errors import BatchNotFound
from api.errors import Conflict
from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from engine_adapter.client.http import HttpEngineClient
from store.models import Batch
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, events_of, line, read_batch

PROJECT = "proj_default"


async def _cancel(database: Database, batch_id: str, project_id: str = PROJECT) -> Batch:
    async with database.unit_of_work() as session:
        return await cancel(session, project_id, batch_id)


async def test_the_status_changes_at_once(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    batch = await _cancel(database, batch_id)
    assert batch.status == "cancelling"
    assert batch.cancelling_at is not None


@pytest.mark.contract("R-19")
async def test_it_is_idempotent(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    first = await _cancel(database, batch_id)
    assert (await _cancel(database, batch_id)).cancelling_at == first.cancelling_at
    await finalize(database, bench.file_store, batch_id)
    assert (await _cancel(database, batch_id)).status == "cancelled"
    assert (await events_of(database, batch_id)).count("cancelling") == 1


@pytest.mark.contract("R-20")
async def test_a_batch_that_is_over_cannot_be_cancelled(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    await bench.dispatch(engine)
    with pytest.raises(Conflict, match="status 'finalizing'"):
        await _cancel(database, batch_id)
    await finalize(database, bench.file_store, batch_id)
    with pytest.raises(Conflict) as refused:
        await _cancel(database, batch_id)
    assert refused.value.message == "Cannot cancel a batch with status 'completed'."
    assert refused.value.current == "completed"
    assert refused.value.expected == ("in_progress", "validating")
    assert (await read_batch(database, batch_id)).status == "completed"


async def test_rows_that_it_closed_are_counted_apart(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    lines = [line("bad", "fake:status=400"), line("good")]
    done, cut = [await add_batch(database, bench.file_store, lines) for _ in range(2)]
    await _cancel(database, cut)
    await bench.dispatch(engine)
    for batch_id, num_stopped in ((done, 0), (cut, 2)):
        await finalize(database, bench.file_store, batch_id)
        batch = await read_batch(database, batch_id)
        assert (batch.num_failed, batch.num_stopped) == (num_stopped or 1, num_stopped)


async def test_batches_of_others_are_unknown(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    with pytest.raises(BatchNotFound):
        await _cancel(database, batch_id, "proj_other")
    with pytest.raises(BatchNotFound):
        await _cancel(database, "batch_unknown")
