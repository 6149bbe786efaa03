"""A process looks at the schema when it starts: older is refused in a sentence, newer is served."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from batch.settings import BatchSettings
from batch.worker.commands import worker_commands
from store.schema import FIRST, NEEDED, WrongDatabase, check_schema
from store.session import Database
from tests.fixtures.supervised import COSERVE, clean_environment
from tests.integration.store.test_online_migrations import alembic_config

UNREACHABLE = "postgresql+psycopg://nobody@127.0.0.1:1/none"


async def test_the_tables_of_this_version_are_right(database: Database) -> None:
    await check_schema(database)


async def test_older_tables_are_refused(database: Database, database_url: str) -> None:
    await asyncio.to_thread(command.downgrade, alembic_config(database_url), FIRST)
    with pytest.raises(WrongDatabase, match=f"schema {FIRST}, this version needs {NEEDED}. Run `c"):
        await check_schema(database)


async def later_version(database: Database, number: str) -> None:
    """What a later version of coserve, or another program, leaves."""
    async with database.unit_of_work() as session:
        await session.execute(text("ALTER TABLE batches ADD COLUMN of_later text"))
        await session.execute(text("CREATE TABLE of_later (id int)"))
        await session.execute(text("UPDATE alembic_version SET version_num = :n"), {"n": number})


def of_image(database_url: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What compose, the Helm chart and operators of parts run before anything else."""
    return subprocess.run(
        [COSERVE, "serve", "migrate"],
        env=clean_environment({"DATABASE_URL": database_url, "COSERVE_HOME": str(home)}),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


async def test_newer_tables_are_served_and_left_as_they_are(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    await later_version(database, "9999")
    await check_schema(database)
    done = await asyncio.to_thread(of_image, database_url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"at schema 9999, newer than this version's {NEEDED}" in done.stderr
    assert "Traceback" not in done.stderr
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
        assert await session.scalar(text("SELECT count(*) FROM of_later")) == 0


@pytest.mark.parametrize("number", ["a1b2c3d4e5f6", "10000"])
async def test_another_programs_tables_are_refused(
    number: str, database: Database, database_url: str, tmp_path: Path
) -> None:
    await later_version(database, number)
    with pytest.raises(WrongDatabase, match="none of coserve's"):
        await check_schema(database)
    done = await asyncio.to_thread(of_image, database_url, tmp_path)
    assert done.returncode == 1
    assert "none of coserve's" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_database_that_is_away_ends_a_migration_with_one_sentence(tmp_path: Path) -> None:
    done = of_image(UNREACHABLE, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("DATABASE_URL: ")
    assert len(done.stderr.splitlines()) == 1


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
