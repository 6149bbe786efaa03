"""A database that is full is told from one that cannot be reached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import SQLAlchemyError

from gateway.settings import GatewaySettings
from store.failures import AWAY, is_busy, why_away
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.online import running_gateway

MODEL = "org/fake-model"
ROLE = "small_role"


@pytest.fixture
async def small_url(database: Database, database_url: str) -> AsyncIterator[str]:
    """The test's database, for a role that may have few connections."""
    async with database.unit_of_work() as session:
        await session.execute(text(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'"))
        await session.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}"))
        await session.execute(text(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}"))
    url = make_url(database_url).set(username=ROLE, password="x")
    yield url.render_as_string(hide_password=False)
    async with database.unit_of_work() as session:
        await session.execute(text(f"DROP OWNED BY {ROLE}"))
        await session.execute(text(f"DROP ROLE {ROLE}"))


async def most(database: Database, num: int) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text(f"ALTER ROLE {ROLE} CONNECTION LIMIT {num}"))


async def error_of(database: Database) -> SQLAlchemyError:
    with pytest.raises(AWAY) as met:
        await database.ping()
    assert isinstance(met.value, SQLAlchemyError)
    return met.value


async def test_no_connection_is_free_at_the_server_or_here(
    database: Database, small_url: str
) -> None:
    await most(database, 1)
    one = Database(small_url, pool_size=1, max_overflow=0, limit_s=0.2)
    other = Database(small_url)
    async with one.unit_of_work() as session:
        await session.execute(text("SELECT 1"))
        for full in (one, other):
            error = await error_of(full)
            assert is_busy(error)
            assert why_away(error) == "is busy"
    await one.dispose()
    await other.dispose()


async def test_one_that_is_not_there_is_not_busy(database_url: str) -> None:
    gone = Database(make_url(database_url).set(host="127.0.0.1", port=1).render_as_string(False))
    error = await error_of(gone)
    assert why_away(error) == "cannot be reached"
    await gone.dispose()


async def test_the_gateway_says_which(
    database: Database, small_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with serving(FakeEngine(FakeSettings(model=MODEL))) as engine_url:
        settings = GatewaySettings(
            database_url=small_url, broker_url=broker_url, engine_urls=engine_url, home=tmp_path
        )
        async with running_gateway(database, settings, MODEL) as gateway, gateway.http() as http:
            assert (await http.get("/v1/files")).status_code == 200
            await most(database, 0)
            async with database.unit_of_work() as session:
                await session.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        f" WHERE usename = '{ROLE}'"
                    )
                )
            reply = await http.get("/v1/files")
            assert reply.status_code == 503
            assert reply.json()["error"]["code"] == "database_unavailable"
            assert reply.json()["error"]["message"] == "The database is busy at the moment."
            async with httpx.AsyncClient(base_url=gateway.url) as anyone:
                said = (await anyone.get("/statusz")).json()["parts"]["database"]
                assert said == {"ok": False, "why": "is busy"}
                assert (await anyone.get("/readyz")).status_code == 200
            await most(database, -1)
            assert (await http.get("/v1/files")).status_code == 200
