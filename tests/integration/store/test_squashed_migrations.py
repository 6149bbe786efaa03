"""Databases made by the steps that led to 0.2: that of the last one counts as migrated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from store.repositories import project as projects
from store.schema import LAST_BEFORE, LAST_COMMIT_BEFORE, NEEDED, WrongDatabase, check_schema
from store.session import Database
from tests.fixtures.workers import ROOT
from tests.integration.store.test_golden_schema import schema_of
from tests.integration.store.test_schema import of_image

SECOND = "ALTER TABLE projects ADD batches_made bigint DEFAULT '0' NOT NULL"


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """The code that has them; skips where the history is too short."""
    archive = subprocess.run(
        ["git", "archive", LAST_COMMIT_BEFORE, "migrations", "store", "service"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if archive.returncode:
        pytest.skip("the history of this checkout does not reach back to them")
    root = tmp_path / "before"
    root.mkdir()
    subprocess.run(["tar", "x", "-C", root], input=archive.stdout, check=True)
    return root


async def made_by(steps: Path, database: Database, database_url: str) -> None:
    """Empty the database, and let those steps make its tables."""
    async with database.unit_of_work() as session:
        await session.execute(text("DROP SCHEMA public CASCADE"))
        await session.execute(text("CREATE SCHEMA public"))
    await database.dispose()
    argv = [sys.executable, "-m", "alembic", "-c", "migrations/alembic.ini", "upgrade", "head"]
    env = {**os.environ, "DATABASE_URL": database_url, "PYTHONPATH": str(steps)}
    done = await asyncio.to_thread(
        subprocess.run, argv, cwd=steps, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", LAST_BEFORE)
async def test_a_database_of_the_last_steps_is_brought_up_to_date_with_what_it_holds(
    number: str, steps: Path, database: Database, database_url: str, tmp_path: Path
) -> None:
    await made_by(steps, database, database_url)
    async with database.unit_of_work() as session:
        if number == LAST_BEFORE[1]:
            await session.execute(text(SECOND))
        change = text("UPDATE alembic_version SET version_num = :number")
        await session.execute(change, {"number": number})
        await session.execute(text("INSERT INTO projects (id, name) VALUES ('proj_kept', 'Kept')"))
    with pytest.raises(WrongDatabase, match=r"Run `coserve serve migrate`"):
        await check_schema(database)
    for _ in range(2):
        done = await asyncio.to_thread(of_image, database_url, tmp_path)
        assert done.returncode == 0, done.stderr
    await check_schema(database)
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT version_num FROM alembic_version")) == NEEDED
        kept = await projects.find(session, "proj_kept")
    assert kept is not None
    schema = (ROOT / "tests/data/oracles/schema.txt").read_text()
    assert (await schema_of(database)).rstrip() == schema.rstrip()


@pytest.mark.parametrize("number", ["0001", "0016", "0030"])
async def test_an_older_one_is_told_what_to_go_through(
    number: str, database: Database, database_url: str, tmp_path: Path
) -> None:
    async with database.unit_of_work() as session:
        change = text("UPDATE alembic_version SET version_num = :number")
        await session.execute(change, {"number": number})
    said = f"at schema {number}, older than this version can migrate. Check out commit"
    with pytest.raises(WrongDatabase, match=said):
        await check_schema(database)
    done = await asyncio.to_thread(of_image, database_url, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert LAST_COMMIT_BEFORE in done.stderr
    assert len(done.stderr.splitlines()) == 1
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT version_num FROM alembic_version")) == number


async def rows_of(database: Database) -> dict[str, list[str]]:
    """The rows of every table that has few, without instants."""
    async with database.unit_of_work() as session:
        tables = await session.scalars(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        )
        return {
            table: sorted(
                await session.scalars(
                    text(f"SELECT (to_jsonb(t) - 'created_at')::text FROM {table} t")
                )
            )
            for table in tables
            if table != "alembic_version"
        }


async def test_new_tables_hold_the_rows_that_those_steps_made(
    steps: Path, database: Database, database_url: str, tmp_path: Path
) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text("DROP SCHEMA public CASCADE"))
        await session.execute(text("CREATE SCHEMA public"))
    await database.dispose()
    done = await asyncio.to_thread(of_image, database_url, tmp_path)
    assert done.returncode == 0, done.stderr
    new = await rows_of(database)
    assert {table for table, rows in new.items() if rows} >= {"full_stores", "projects"}
    await made_by(steps, database, database_url)
    done = await asyncio.to_thread(of_image, database_url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert await rows_of(database) == new
