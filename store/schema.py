"""Which tables this code needs, and whether the database has them.

A process asks once, at its start, so that a forgotten migration is one sentence and no traceback an
hour later. A newer schema is accepted: migrations only add (tests/architecture/test_migrations.py),
so that code of the version before runs beside it while a rollout lasts.
"""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import InterfaceError, OperationalError, ProgrammingError

from store.session import Database

NEEDED: Final = "0016"
"""The newest migration this code knows; a test compares it with `migrations/versions`."""

HOW = "Run `coserve serve migrate` with the same DATABASE_URL, then start again."

logger = logging.getLogger(__name__)


class WrongSchema(Exception):
    """The database cannot serve this code; the message says what to do."""


async def check_schema(database: Database) -> None:
    """Compare the database with `NEEDED`; one that is away is not judged.

    Raises:
        WrongSchema: It has no tables, or older ones than this code needs.
    """
    try:
        async with database.unit_of_work() as session:
            found = await session.scalar(text("SELECT version_num FROM alembic_version"))
    except ProgrammingError:  # no such table
        found = None
    except (OperationalError, InterfaceError):
        logger.warning("the database does not answer: its schema was not checked")
        return
    if found is None:
        raise WrongSchema(f"The database has no tables of coserve. {HOW}")
    if found < NEEDED:
        raise WrongSchema(f"The database is at schema {found}, this version needs {NEEDED}. {HOW}")
    if found > NEEDED:
        logger.warning("the database is at schema %s, newer than this code's %s", found, NEEDED)
