"""The servers every integration test stands on."""

from __future__ import annotations

import redis
from sqlalchemy import text

from store.session import Database


async def test_a_test_gets_a_migrated_database(database: Database) -> None:
    async with database.unit_of_work() as session:
        tables = set((await session.scalars(text("SELECT tablename FROM pg_tables"))).all())
    assert {"batches", "files", "alembic_version"} <= tables


async def test_what_one_test_writes_the_next_does_not_see(database: Database) -> None:
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT count(*) FROM batches")) == 0


def test_the_broker_is_empty_and_keeps_what_it_is_given(broker_url: str) -> None:
    with redis.Redis.from_url(broker_url) as client:
        assert client.dbsize() == 0
        client.set("k", "v")
        assert client.get("k") == b"v"
