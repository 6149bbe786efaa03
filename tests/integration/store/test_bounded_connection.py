"""Which waits for the server end: those whose answer has not come."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from store.session import Database

LIMIT_S = 0.4


async def test_an_answer_that_came_while_the_loop_stood_still_is_read(database_url: str) -> None:
    database = Database(database_url, limit_s=LIMIT_S)
    try:
        await database.ping()

        async def asked() -> int:
            async with database.unit_of_work() as session:
                found: int = (
                    await session.execute(text("SELECT 1 FROM pg_sleep(0.1)"))
                ).scalar_one()
                return found

        asking = asyncio.ensure_future(asked())
        await asyncio.sleep(0.05)
        time.sleep(2 * LIMIT_S)
        assert await asking == 1
    finally:
        await database.dispose()


async def test_one_that_does_not_come_is_not_waited_for(database_url: str) -> None:
    database = Database(database_url, limit_s=LIMIT_S)
    try:
        with pytest.raises(OperationalError):
            async with database.unit_of_work() as session:
                await session.execute(text("SELECT pg_sleep(60)"))
    finally:
        await database.dispose()
