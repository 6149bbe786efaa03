"""A batch whose rows the database will never take ends; it is not asked for again."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from batch.files import make_file_store
from batch.settings import BatchSettings
from batch.storage import NOT_STORABLE_CODE
from batch.worker.app import make_app
from batch.worker.drain import DrainPipe
from batch.worker.stages import Stages
from store.session import Database
from tests.fixtures.batches import add_validating, line, read_batch, row_statuses

# What a line beyond the limits of Postgres comes to, without a gigabyte.
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE program_limit_exceeded USING MESSAGE = 'too large'; END $$
"""
TRIGGER = (
    "CREATE TRIGGER refuse BEFORE INSERT ON batch_rows FOR EACH ROW"
    " WHEN (NEW.custom_id = 'huge') EXECUTE FUNCTION refuse()"
)


@pytest.fixture
def settings(
    database_url: str, broker_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BatchSettings:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
    return BatchSettings()


async def test_rows_that_the_database_refuses_end_their_batch_alone(
    database: Database, settings: BatchSettings
) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text(REFUSE))
        await session.execute(text(TRIGGER))
    store = make_file_store(settings)
    refused = await add_validating(database, store, [line("a"), line("huge")])
    good = await add_validating(database, store, [line("a")])
    stages = Stages(make_app(settings), settings, DrainPipe())
    await stages.stages()
    await stages.aclose()
    batch = await read_batch(database, refused)
    assert (batch.status, [fault["code"] for fault in batch.errors or []]) == (
        "failed",
        [NOT_STORABLE_CODE],
    )
    assert await row_statuses(database, refused) == {}
    assert (await read_batch(database, good)).status == "in_progress"
