"""A level that an operator sets reaches the engine, and reaches it again after a restart."""

from __future__ import annotations

import asyncio

from store.repositories import engine as engines
from store.session import Database
from tests.fakes.client import FakeEngine
from tests.integration.gateway.conftest import Online


async def _until(engine: FakeEngine, level: str) -> None:
    async with asyncio.timeout(20):
        while engine.report["level"] != level:
            await asyncio.sleep(0.05)


async def test_an_engine_is_told_its_level_whenever_it_has_another(
    online: Online, database: Database
) -> None:
    online.engine.report = {"level": "balanced"}
    (member,) = online.app.state.engines.members
    async with database.unit_of_work() as work:
        await engines.add(work, member.url)
        await engines.set_level(work, member.url, "invisible")
    await _until(online.engine, "invisible")
    online.engine.report = {"level": "max"}  # it has started anew, with another COSERVE_LEVEL
    await _until(online.engine, "invisible")


async def test_a_stored_level_that_is_none_is_not_told(online: Online, database: Database) -> None:
    online.engine.report = {"level": "balanced"}
    registry = online.app.state.registry
    pool = online.app.state.engines
    async with database.unit_of_work() as work:
        await engines.add(work, pool.members[0].url)
        await engines.set_level(work, pool.members[0].url, "of a later version")
    await pool.probe()
    await registry.apply(pool)
    await registry.set_levels(pool)
    assert online.engine.report["level"] == "balanced"
