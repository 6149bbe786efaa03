"""A process looks at the schema when it starts: older is refused in a sentence, newer is served."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import text

from batch.settings import BatchSettings
from batch.worker.commands import worker_commands
from store.schema import NEEDED, WrongDatabase, check_schema
from store.session import Database
from tests.integration.store.test_online_migrations import alembic_config

UNREACHABLE = "postgresql+psycopg://nobody@127.0.0.1:1/none"


def test_the_newest_migration_is_the_one_that_is_needed() -> None:
    assert ScriptDirectory.from_config(alembic_config("")).get_heads() == [NEEDED]


async def test_the_tables_of_this_version_are_right(database: Database) -> None:
    await check_schema(database)


async def test_older_tables_are_refused(database: Database, database_url: str) -> None:
    await asyncio.to_thread(command.downgrade, alembic_config(database_url), "0013")
    with pytest.raises(WrongDatabase, match=f"schema 0013, this version needs {NEEDED}. Run `cos"):
        await check_schema(database)


async def test_newer_tables_are_served(database: Database) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await check_schema(database)


async def test_a_database_that_is_away_is_not_judged() -> None:
    database = Database(UNREACHABLE, limit_s=2.0)
    await check_schema(database)
    await database.dispose()


@pytest.mark.parametrize("part", ["gateway", "worker-sweep"])
async def test_a_process_without_its_tables_says_what_to_do(
    part: str, database: Database, database_url: str, broker_url: str
) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text("DROP TABLE alembic_version"))
    given = {"DATABASE_URL": database_url, "BROKER_URL": broker_url, "COSERVE_PORT": "0"}
    workers = {one.name: one.argv for one in worker_commands(BatchSettings.model_validate(given))}
    process = await asyncio.create_subprocess_exec(
        *workers.get(part, (sys.executable, "-m", "gateway")),
        env={**os.environ, **given},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode not in (0, None)
    assert "has no tables of coserve. Run `coserve serve migrate`" in said
    assert "Traceback" not in said
