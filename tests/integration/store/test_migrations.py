"""The tables that migrations make are the tables that the models say."""

from __future__ import annotations

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from store.models import Base
from store.session import Database

ALEMBIC = Path(__file__).parents[3] / "migrations" / "alembic.ini"


async def test_migrations_and_models_are_equal(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection)
        return list(compare_metadata(context, Base.metadata))

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []
