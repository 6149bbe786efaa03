"""Commands that work on the database itself: one transaction, errors in one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from coserve.commands.settings import read_settings
from coserve.commands.terminal import refuse

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

Result = TypeVar("Result")


def database_url() -> str:
    """DATABASE_URL, else the embedded server of the stack that runs on this state directory."""
    from coserve.local.database import find_url

    found = find_url(read_settings())
    if found is None:
        refuse("No database: start coserve first, or set DATABASE_URL.")
    return found


def in_transaction(work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
    """Run `work` in one transaction; ends the command with a sentence where that fails."""
    from sqlalchemy.exc import SQLAlchemyError

    from coserve.local.database import brief_database

    url = database_url()

    async def run() -> Result:
        async with brief_database(url) as database, database.unit_of_work() as session:
            return await work(session)

    try:
        return asyncio.run(run())
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        refuse(f"The database refused: {reason}")
