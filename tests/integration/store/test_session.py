"""One instant for several queries."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

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
