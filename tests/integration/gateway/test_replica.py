"""Lists from a replica of Postgres: a real one that streams, falls behind, and is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from sqlalchemy import make_url, text

from batch.files import make_file_store
from gateway.replica import MAX_LAG_S, Readings
from gateway.settings import GatewaySettings
from service.clock import SystemClock
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import PATIENCE_S, add_validating, line
from tests.fixtures.online import running_gateway
from tests.fixtures.postgres_replica import Replica

MODEL = "m"


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await true():
            await asyncio.sleep(0.05)


async def test_lists_come_from_the_replica_and_single_things_do_not(
    database: Database,
    database_url: str,
    broker_url: str,
    postgres_replica: Replica,
    tmp_path: Path,
) -> None:
    async with serving(FakeEngine(FakeSettings(model=MODEL))) as engine_url:
        settings = GatewaySettings(
            database_url=database_url,
            database_replica_url=postgres_replica.files.url(make_url(database_url).database or ""),
            broker_url=broker_url,
            engine_urls=engine_url,
            home=tmp_path,
        )
        async with running_gateway(database, settings, MODEL) as gateway, gateway.http() as http:
            readings: Readings = gateway.app.state.readings

            async def listed() -> set[str]:
                both = [(await http.get(f"/v1/{what}")).json() for what in ("batches", "files")]
                return {one["id"] for each in both for one in each["data"]}

            async def from_replica() -> bool:
                return readings.from_replica

            await until(from_replica)
            readings.max_lag_s = 3600
            postgres_replica.pause()
            lines = [line("a")]
            batch_id = await add_validating(database, make_file_store(settings), lines)
            assert await listed() == set(), "it is not in the replica"
            assert (await http.get(f"/v1/batches/{batch_id}")).status_code == 200

            # Where that is too old, the primary is asked.
            readings.max_lag_s = 0

            async def shows() -> bool:
                return batch_id in await listed()

            await until(shows)
            assert not readings.from_replica
            readings.max_lag_s = MAX_LAG_S
            postgres_replica.resume()
            await until(from_replica)
            await until(shows)

            postgres_replica.process.stop()

            async def from_primary() -> bool:
                return not readings.from_replica

            await until(from_primary)
            assert await shows(), "no list is lost with it"


async def test_another_kind_of_copy_is_taken_at_its_word(
    database: Database, database_url: str
) -> None:
    copy = Database(database_url)
    readings = Readings(database, copy, SystemClock())
    async with asyncio.timeout(PATIENCE_S):
        while not readings.from_replica:
            await readings.poll()
    async with readings.snapshot() as session:
        assert await session.scalar(text("SELECT 1")) == 1
    await copy.dispose()


async def test_without_one_nothing_is_looked_at(database: Database) -> None:
    readings = Readings(database, None, SystemClock())
    await readings.poll()
    assert not readings.from_replica
