"""Alembic's entry: reads DATABASE_URL, compares with the one metadata."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import create_engine, pool

from store.models import Base


def _url() -> str:
    url = context.config.get_main_option("sqlalchemy.url") or os.environ.get("DATABASE_URL")
    if not url:
        raise SystemExit("DATABASE_URL is not set: name the database to migrate")
    return url


def _run() -> None:
    engine = create_engine(_url(), poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=Base.metadata)
        with context.begin_transaction():
            # Two starts at once must not migrate twice: the second waits here.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7263458100)")
            context.run_migrations()
    engine.dispose()


if context.is_offline_mode():
    context.configure(url=_url(), target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    _run()
