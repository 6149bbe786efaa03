"""A database of release 0.2 with work in it, brought up to date through the doors of operators.

`tests/data/release_0_2.sql` is what `pg_dump --inserts --no-owner` said of one at schema 0102: a
key, two projects, a batch that was done, one whose rows waited and one that was not validated yet.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text
from sqlalchemy.engine import make_url

from coserve.local import postgres
from store.models.file import STORES
from store.repositories import key as keys
from store.schema import NEEDED, check_schema
from store.session import Database
from tests.fakes.client import FakeEngineClient
from tests.fixtures.batches import Bench, line, read_batch
from tests.fixtures.supervised import COSERVE, clean_environment
from tests.fixtures.workers import ROOT
from tests.integration.store.test_golden_schema import schema_of
from tests.integration.store.test_online_migrations import alembic_config
from tests.integration.store.test_schema import of_image
from tests.integration.store.test_squashed_migrations import rows_of

DUMP = ROOT / "tests/data/release_0_2.sql"
KEY = "sk-coserve-kept-over-the-upgrade"
DONE, HALF, NEW = (
    "batch_01a224dea64cefd15fd82299",
    "batch_01a224dead26a64b456bdcc7",
    "batch_01a224dead79b573a5799a58",
)
INPUTS = {
    "file-01a224dead0d315b579fac55": [line(f"half-{n}") for n in range(4)],
    "file-01a224dead61da18c39c7595": [line(f"new-{n}") for n in range(2)],
}


def load(database_url: str) -> None:
    """Fill the empty database from the dump."""
    url = make_url(database_url)
    where = url.query
    named = {"PGHOST": url.host or where.get("host"), "PGPORT": url.port or where.get("port")}
    env = {name: str(value) for name, value in named.items() if value}
    argv = [str(postgres.program("psql")), "-qX", "-v", "ON_ERROR_STOP=1", "-f", str(DUMP)]
    done = subprocess.run(
        [*argv, f"--dbname={url.database}", f"--username={url.username}"],
        env={"PATH": os.environ["PATH"], "PGPASSWORD": url.password or "", **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def check(database_url: str, home: Path) -> dict[str, object]:
    """What `coserve upgrade --check` says."""
    done = subprocess.run(
        [COSERVE, "upgrade", "--check", "--json"],
        env=clean_environment({"DATABASE_URL": database_url, "COSERVE_HOME": str(home)}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def tables_in(schema: str) -> list[str]:
    """Columns and keys of a schema; Postgres rewrites conditions when it reads a dump."""
    return [one for one in schema.rstrip().splitlines() if " ANY (" not in one]


@pytest.fixture(params=["0100", "0102"])
async def before(request: pytest.FixtureRequest, database: Database, database_url: str) -> str:
    """The database at that schema: the first and the last that there were before the release."""
    async with database.unit_of_work() as session:
        await session.execute(text("DROP SCHEMA public CASCADE"))
        await session.execute(text("CREATE SCHEMA public"))
    await database.dispose()
    await asyncio.to_thread(load, database_url)
    await asyncio.to_thread(command.downgrade, alembic_config(database_url), request.param)
    async with database.unit_of_work() as session:
        live = f"UPDATE batches SET expires_at = now() + interval '1 day' WHERE id <> '{DONE}'"
        await session.execute(text(live))
    await database.dispose()
    return str(request.param)


async def _bytes(lines: list[bytes]) -> AsyncIterator[bytes]:
    for one in lines:
        yield one + b"\n"


async def test_everything_is_kept_and_work_goes_on(
    before: str, database: Database, database_url: str, tmp_path: Path
) -> None:
    told = check(database_url, tmp_path)
    assert (told["schema"], told["refused"], told["live_batches"]) == (before, None, 2)
    kept = await rows_of(database)
    done = await asyncio.to_thread(of_image, database_url, tmp_path)
    assert done.returncode == 0, done.stderr
    await check_schema(database)
    assert check(database_url, tmp_path)["schema"] == NEEDED
    schema = (ROOT / "tests/data/oracles/schema.txt").read_text()
    assert tables_in(await schema_of(database)) == tables_in(schema)
    now = await rows_of(database)
    wanted = {table: len(rows) for table, rows in kept.items()}
    wanted["full_stores"] = len(STORES)  # the places that this version knows
    assert {table: len(rows) for table, rows in now.items()}.items() >= wanted.items()
    async with database.unit_of_work() as session:
        assert await keys.find_by_plaintext(session, KEY) is not None

    bench = Bench(database)
    for file_id, lines in INPUTS.items():
        await bench.file_store.put(file_id, _bytes(lines))
    await bench.work()  # validates the new one
    await bench.dispatch(FakeEngineClient())
    await bench.work()  # and finalizes both
    found = [await read_batch(database, one) for one in (DONE, HALF, NEW)]
    assert [(one.status, one.num_completed) for one in found] == [
        ("completed", 3), ("completed", 4), ("completed", 2),
    ]  # fmt: skip
