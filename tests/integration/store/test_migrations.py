"""The tables that migrations make are the tables that the models say."""

from __future__ import annotations

import asyncio
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from store.models import Base
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line, read_batch

ALEMBIC = Path(__file__).parents[3] / "migrations" / "alembic.ini"


async def test_migrations_and_models_are_equal(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection)
        return list(compare_metadata(context, Base.metadata))

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_rows_stopped_before_they_were_counted_are_counted(
    database: Database, database_url: str
) -> None:
    lines = [line("a"), line("b"), line("c"), line("d")]
    batch_id = await add_batch(database, Bench(database).file_store, lines)
    words = ("succeeded", "errored", "cancelled", "expired")
    async with database.unit_of_work() as session:
        for number, word in enumerate(words, start=1):
            change = text("UPDATE batch_rows SET status = :word WHERE line_no = :number")
            await session.execute(change, {"word": word, "number": number})
    await database.dispose()
    config = Config(str(ALEMBIC))
    config.set_main_option("sqlalchemy.url", database_url.replace("%", "%%"))
    await asyncio.to_thread(command.downgrade, config, "0007")
    await asyncio.to_thread(command.upgrade, config, "head")
    assert (await read_batch(database, batch_id)).num_stopped == 2
