"""The database of a stack on this machine: where it is, asked for a moment, and migrated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import SQLAlchemyError

from coserve.local import postgres
from coserve.local.errors import LocalError
from service.data_folder import PACKAGES
from store.bounded_connection import ANSWER_LIMIT_S
from store.session import Database

if TYPE_CHECKING:
    from coserve.settings import LocalSettings

DATABASE_NAME: Final = "app"


class MigrationFailed(LocalError):
    """The tables could not be brought up to date; the message says why."""


def find_url(settings: LocalSettings) -> str | None:
    """DATABASE_URL, else the embedded server that runs on this state directory; None without."""
    return settings.database_url or postgres.running_url(settings.home_path)


@asynccontextmanager
async def brief_database(url: str) -> AsyncIterator[Database]:
    """One connection while somebody waits: a server that hangs counts as away."""
    database = Database(url, pool_size=1, limit_s=ANSWER_LIMIT_S)
    try:
        yield database
    finally:
        await database.dispose()


def migrate(url: str) -> None:
    """Bring the database's tables up to date; a newer database is left as it is.

    `coserve up`, `coserve restore` and `coserve serve migrate` come through here, and with the last
    the images' start, that of compose and that of the Helm chart.

    Raises:
        MigrationFailed: The database is away, another program's, or a migration failed.
    """
    config = _config()
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    try:
        command.upgrade(config, "head")
    except (SQLAlchemyError, CommandError) as error:
        cause = getattr(error, "orig", None) or error
        said = str(cause).strip().splitlines() or [type(cause).__name__]
        raise MigrationFailed(said[0]) from error


def migrations() -> dict[str, str]:
    """Number and title of every migration of this version, oldest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return dict(sorted((one.revision, (one.doc or "").splitlines()[0]) for one in scripts))


def _config() -> Config:
    return Config(str(PACKAGES / "migrations" / "alembic.ini"))
