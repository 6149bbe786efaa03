from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench
from tests.fixtures.steered_engine import SteeredEngine


@pytest.fixture
def bench(database: Database) -> Bench:
    """Everything a dispatcher needs but an engine."""
    return Bench(database)


@pytest.fixture
def fake_engine() -> SteeredEngine:
    """Answers at once; `fake:` orders in a prompt change that, and a test may hold it."""
    return SteeredEngine(FakeSettings(max_running=64))


@pytest.fixture
async def engine(fake_engine: SteeredEngine) -> AsyncIterator[HttpEngineClient]:
    """The client of `fake_engine`, over a real socket."""
    async with serving(fake_engine) as url:
        client = HttpEngineClient(url)
        yield client
        await client.close()
