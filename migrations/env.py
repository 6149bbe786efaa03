"""Alembic's entry: reads DATABASE_URL, compares with the one metadata.

Migrations run beside traffic: each in a transaction of its own, none of which waits for a table
for longer than `LOCK_TIMEOUT` (whoever waits for a table makes everybody else wait behind it).
One that fails never says what values it had.
Indexes of large tables are made concurrently, outside of transactions (`migrations.indexes`).

A database that a later version has migrated is left as it is, and that is logged: earlier code
works on it (`store.schema`). It is looked at when it is this process' turn, not before.
"""

from __future__ import annotations

import logging
import os
import time

from alembic import context
from alembic.util.exc import CommandError
from sqlalchemy import Connection, create_engine, pool, text

from store.models import Base
from store.schema import WrongDatabase, is_newer, newer, reached

LOCK_TIMEOUT = "5s"
_ONE_AT_A_TIME = 7263458100
_POLL_INTERVAL_S = 0.1

logger = logging.getLogger("migrations")


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
        later = _later(context.get_context().get_current_heads())
        if later is None:
            _count_as_migrated(connection)
            with context.begin_transaction():
                context.run_migrations()
        else:
            logger.warning(newer(later))
    engine.dispose()


def _later(heads: tuple[str, ...]) -> str | None:
    """The schema of a database that a later version has migrated."""
    try:
        return max((found for found in heads if is_newer(found)), default=None)
    except WrongDatabase as error:
        raise CommandError(str(error)) from error


def _count_as_migrated(connection: Connection) -> None:
    """Give a database that earlier steps have brought to the tables of 0.2 its number."""
    for found in context.get_context().get_current_heads():
        try:
            number = reached(found)
        except WrongDatabase as error:
            raise CommandError(str(error)) from error
        if number != found:
            change = text("UPDATE alembic_version SET version_num = :number")
            connection.execute(change, {"number": number})
            connection.commit()


def _wait_for_turn(connection: Connection) -> None:
    """Two starts at once must not migrate twice: the second waits here.

    It asks again and again: a statement that waited for the lock would itself be waited for by the
    concurrent making of an index. The lock ends with the connection.
    """
    while not connection.scalar(
        text("SELECT pg_try_advisory_lock(:number)"), {"number": _ONE_AT_A_TIME}
    ):
        connection.commit()
        time.sleep(_POLL_INTERVAL_S)
    connection.commit()


if context.is_offline_mode():
    context.configure(url=_url(), target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    _run()
