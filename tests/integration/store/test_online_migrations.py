"""Migrations run beside traffic."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from alembic import command
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from psycopg.errors import LockNotAvailable
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from migrations import indexes
from store.schema import FIRST, check_schema
from store.session import Database
from tests.integration.store.test_migrations import ALEMBIC


def alembic_config(database_url: str) -> Config:
    config = Config(str(ALEMBIC))
    config.set_main_option("sqlalchemy.url", database_url.replace("%", "%%"))
    return config


def make_index(database_url: str) -> None:
    """As a migration does."""
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        with Operations.context(context), context.begin_transaction(_per_migration=True):
            indexes.create("ix_of_test", "batches", ["priority", "id"])
    engine.dispose()


async def test_indexes_are_made_while_writers_write(database: Database, database_url: str) -> None:
    """A transaction that writes is open all the time: nobody behind it waits for the migration."""
    insert = text("INSERT INTO batch_events (batch_id, event) SELECT id, 'x' FROM batches")
    async with asyncio.TaskGroup() as group, database.unit_of_work() as writer:
        await writer.execute(text("UPDATE batches SET priority = 1"))
        migrating = group.create_task(asyncio.to_thread(make_index, database_url))
        while not await _waits_for_writers(database):
            assert not migrating.done()
            await asyncio.sleep(0.01)
        async with database.unit_of_work() as other:
            await other.execute(text("SET LOCAL lock_timeout = '2s'"))
            await other.execute(text("UPDATE batches SET priority = 2 WHERE false"))
            await other.execute(insert)
    async with database.unit_of_work() as session:
        valid = await session.scalar(
            text("SELECT indisvalid FROM pg_index WHERE indexrelid = 'ix_of_test'::regclass")
        )
    assert valid


async def _waits_for_writers(database: Database) -> bool:
    async with database.unit_of_work() as session:
        num = await session.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'"
            )
        )
    return bool(num)


async def test_one_that_would_have_to_wait_for_long_gives_up_and_may_be_repeated(
    database: Database, database_url: str
) -> None:
    """Whoever waits for a table makes everybody else wait behind it."""
    config = alembic_config(database_url)
    await asyncio.to_thread(command.downgrade, config, FIRST)
    async with database.unit_of_work() as reader:
        await reader.execute(text("SELECT count(*) FROM batch_rows"))
        with pytest.raises(OperationalError) as refused:
            await asyncio.to_thread(command.upgrade, config, "head")
        assert isinstance(refused.value.orig, LockNotAvailable)
    await asyncio.to_thread(command.upgrade, config, "head")
    await check_schema(database)


async def test_two_that_start_at_once_migrate_once(database: Database, database_url: str) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text("DROP SCHEMA public CASCADE"))
        await session.execute(text("CREATE SCHEMA public"))
    alembic = (sys.executable, "-m", "alembic", "-c", str(ALEMBIC), "upgrade", "head")
    env = {**os.environ, "DATABASE_URL": database_url}
    two = [await asyncio.create_subprocess_exec(*alembic, env=env) for _ in range(2)]
    assert [await one.wait() for one in two] == [0, 0]
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT count(*) FROM alembic_version")) == 1
