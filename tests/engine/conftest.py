"""A gateway before the engine of a test, which is proven first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from engine_adapter.liveness import verify_engine
from gateway.settings import GatewaySettings
from store.session import Database
from tests.fixtures.engine import START_LIMIT_S, RunningEngine
from tests.fixtures.online import Gateway, running_gateway


@pytest_asyncio.fixture
async def gateway(
    engine: RunningEngine, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Gateway]:
    await verify_engine(engine.url, engine.model, START_LIMIT_S)
    settings = GatewaySettings(
        database_url=database_url, broker_url=broker_url, engine_urls=engine.url, home=tmp_path
    )
    async with running_gateway(database, settings, engine.model) as running:
        yield running
