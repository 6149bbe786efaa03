"""What a process asks of its database at the start: the tables it needs, and room for its pool.

It asks once, so that a forgotten migration is one sentence and no traceback an
hour later. A newer schema is accepted: migrations only add (tests/architecture/test_migrations.py),
so that code of the version before runs beside it while a rollout lasts, and is the way back.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from store.session import Database

FIRST: Final = "0100"
"""The migration that makes the tables of release 0.2."""

LAST_BEFORE: Final = ("0031", "0032")
"""The last of the migrations that led to the same tables step by step. What the second added, 0102
adds where it is missing."""

LAST_COMMIT_BEFORE: Final = "a3878576"
"""A commit that has those steps."""

NEEDED: Final = "0109"
"""The newest migration this code knows; tests/architecture/test_migrations.py compares them."""

HOW = "Run `coserve serve migrate` with the same DATABASE_URL, then start again."

logger = logging.getLogger(__name__)


class WrongDatabase(Exception):
    """The database cannot serve this process; the message says what to do."""


def is_newer(found: str) -> bool:
    """Whether a later version of coserve has migrated a database.

    Raises:
        WrongDatabase: The number is none of coserve's.
    """
    if not re.fullmatch(r"\d{4}", found):
        raise WrongDatabase(
            f"The database is at schema {found!r}, which is none of coserve's: another program's "
            "migrations ran here. Name coserve's own database in DATABASE_URL."
        )
    return found > NEEDED


def reached(found: str) -> str:
    """The migration a database is at, in this version's numbers.

    Raises:
        WrongDatabase: It is older than what this version can migrate, or another program's.
    """
    if found in LAST_BEFORE:
        return FIRST
    if not is_newer(found) and found < FIRST:
        raise WrongDatabase(
            f"The database is at schema {found}, older than this version can migrate. Check out "
            f"commit {LAST_COMMIT_BEFORE} of coserve, run `coserve serve migrate` there with the "
            "same DATABASE_URL, then start this version again."
        )
    return found


def newer(found: str) -> str:
    """What is logged where code of an earlier version works on a newer database."""
    return (
        f"The database is at schema {found}, newer than this version's {NEEDED}. Migrations only "
        "add, so this version works on it (docs/deploy/upgrade.md)."
    )


async def stored_schema(session: AsyncSession) -> str | None:
    """The schema a database is at; none where it has no tables of coserve."""
    if await session.scalar(text("SELECT to_regclass('alembic_version') IS NULL")):
        return None
    found: str | None = await session.scalar(text("SELECT version_num FROM alembic_version"))
    return found


async def check_schema(database: Database) -> None:
    """Compare the database with `NEEDED`; one that is away is not judged.

    Raises:
        WrongDatabase: It has no tables, older ones than this code needs, or another program's.
    """
    try:
        async with database.unit_of_work() as session:
            found = await stored_schema(session)
    except (OperationalError, InterfaceError):
        logger.warning("the database does not answer: its schema was not checked")
        return
    if found is None:
        raise WrongDatabase(f"The database has no tables of coserve. {HOW}")
    if is_newer(found):
        logger.warning(newer(found))
    elif reached(found) < NEEDED:
        raise WrongDatabase(
            f"The database is at schema {found}, this version needs {NEEDED}. {HOW}"
        )


async def check_room(database: Database, num_wanted: int) -> None:
    """Refuse a pool that is larger than what the server lets in; one that is away is not judged.

    Behind a pooler it is the server that answers: what one process may want of it stays right.

    Raises:
        WrongDatabase: The process alone could use up the server's connections.
    """
    shown = "SELECT current_setting(:name)::int"
    try:
        async with database.unit_of_work() as session:
            most = await session.scalar(text(shown), {"name": "max_connections"})
            kept = await session.scalar(text(shown), {"name": "superuser_reserved_connections"})
    except (OperationalError, InterfaceError):
        return
    if num_wanted > most - kept:
        raise WrongDatabase(
            f"COSERVE_DATABASE_POOL and COSERVE_DATABASE_OVERFLOW let this process have "
            f"{num_wanted} connections, and Postgres has {most - kept} for all. Lower them, raise "
            f"max_connections, or put a pooler in between (docs/deploy/index.md)."
        )
