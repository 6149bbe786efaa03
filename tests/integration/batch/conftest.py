from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engine_adapter.client.fake_engine import FakeEngine, FakeSettings
from engine_adapter.client.fake_server import serving
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import Bench


@pytest.fixture
def bench(database: Database) -> Bench:
    """Everything a dispatcher needs but an engine."""
    return Bench(database)


@pytest.fixture
def fake_engine() -> FakeEngine:
    """Answers at once; `fake:` orders in a prompt change that."""
    return FakeEngine(FakeSettings(max_running=64))


@pytest.fixture
async def engine(fake_engine: FakeEngine) -> AsyncIterator[HttpEngineClient]:
    """The client of `fake_engine`, over a real socket."""
    async with serving(fake_engine) as url:
        client = HttpEngineClient(url)
        yield client
        await client.close()
