"""Alembic's entry: reads DATABASE_URL, compares with the one metadata.

Migrations run beside traffic: each in a transaction of its own, none of which waits for a table
for longer than `LOCK_TIMEOUT` (whoever waits for a table makes everybody else wait behind it).
One that fails never says what values it had.
Indexes of large tables are made concurrently, outside of transactions (`migrations.indexes`).
"""

from __future__ import annotations

import os
import time

from alembic import context
from sqlalchemy import Connection, create_engine, pool, text

from store.models import Base

LOCK_TIMEOUT = "5s"
_ONE_AT_A_TIME = 7263458100
_LOOK_S = 0.1


def _url() -> str:
    url = context.config.get_main_option("sqlalchemy.url") or os.environ.get("DATABASE_URL")
    if not url:
        raise SystemExit("DATABASE_URL is not set: name the database to migrate")
    return url


def _run() -> None:
    engine = create_engine(_url(), poolclass=pool.NullPool, hide_parameters=True)
    with engine.connect() as connection:
        _wait_for_turn(connection)
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.commit()
        context.configure(
            connection=connection, target_metadata=Base.metadata, transaction_per_migration=True
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


def _wait_for_turn(connection: Connection) -> None:
    """Two starts at once must not migrate twice: the second waits here.

    It asks again and again: a statement that waited for the lock would itself be waited for by the
    concurrent making of an index. The lock ends with the connection.
    """
    while not connection.scalar(
        text("SELECT pg_try_advisory_lock(:number)"), {"number": _ONE_AT_A_TIME}
    ):
        connection.commit()
        time.sleep(_LOOK_S)
    connection.commit()


if context.is_offline_mode():
    context.configure(url=_url(), target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    _run()
