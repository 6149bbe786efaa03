"""One instant for several queries."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from store.session import Database

COUNT = text("SELECT count(*) FROM projects")
ADD = text(
    "INSERT INTO projects (id, name, organization_id)"
    " SELECT 'proj_new', 'new', organization_id FROM projects LIMIT 1"
)


async def test_a_snapshot_is_of_one_instant(database: Database) -> None:
    async with database.snapshot() as session:
        before = (await session.execute(COUNT)).scalar_one()
        async with database.unit_of_work() as other:
            await other.execute(ADD)
        assert (await session.execute(COUNT)).scalar_one() == before
    async with database.snapshot() as session:
        assert (await session.execute(COUNT)).scalar_one() == before + 1


async def test_a_snapshot_only_reads_and_leaves_its_connection_as_it_was(
    database: Database,
) -> None:
    with pytest.raises(DBAPIError, match="read-only"):
        async with database.snapshot() as session:
            await session.execute(ADD)
    async with database.unit_of_work() as session:
        await session.execute(ADD)
        level = await session.execute(text("SHOW transaction_isolation"))
        assert level.scalar_one() == "read committed"


async def test_errors_do_not_repeat_what_was_to_be_stored(database: Database) -> None:
    with pytest.raises(DBAPIError) as refused:
        async with database.unit_of_work() as session:
            await session.execute(
                text("INSERT INTO projects (id, name) VALUES (:id, :name), (:id, :name)"),
                {"id": "proj_twice", "name": "a prompt nobody should read in a log"},
            )
    assert "a prompt" not in str(refused.value)


@pytest.mark.parametrize("limit_s", [None, 5.0])
async def test_a_server_that_takes_no_writes_is_lost(
    database: Database, database_url: str, limit_s: float | None
) -> None:
    """And the next transaction has a connection of its own, which may lead to another server."""
    del database  # its tables
    pids: list[int] = []
    one = Database(database_url, pool_size=1, max_overflow=0, limit_s=limit_s)
    for how in ("", "SET TRANSACTION READ ONLY", ""):
        with nullcontext() if not how else pytest.raises(OperationalError):
            async with one.unit_of_work() as session:
                pids.append(int(await session.scalar(text("SELECT pg_backend_pid()")) or 0))
                await session.execute(text(how or "SELECT 1"))
                await session.execute(text("UPDATE full_stores SET full_at = NULL"))
    await one.dispose()
    assert pids[0] == pids[1] != pids[2]
