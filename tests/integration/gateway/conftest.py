"""The gateway before a fake engine on a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import GatewaySettings
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.online import Gateway, running_gateway

MODEL = "org/fake-model"


@dataclass(frozen=True)
class Online(Gateway):
    """A gateway and the fake engine behind it."""

    engine: FakeEngine

    async def until_engine_is_free(self, limit_s: float = 2.0) -> None:
        async with asyncio.timeout(limit_s):
            while self.engine.waiting or self.engine.running:
                await asyncio.sleep(0.005)

    async def until_engine_is_busy(self, num: int = 1) -> None:
        async with asyncio.timeout(5):
            while len(self.engine.running) < num:
                await asyncio.sleep(0.005)


@pytest.fixture
def online_settings() -> dict[str, Any]:
    """Settings that a test module wants otherwise."""
    return {}


@pytest.fixture
async def online(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    online_settings: dict[str, Any],
) -> AsyncIterator[Online]:
    engine = FakeEngine(FakeSettings(model=MODEL))
    async with serving(engine) as engine_url:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=engine_url,
            home=tmp_path,
            **online_settings,
        )
        async with running_gateway(database, settings, MODEL) as gateway:
            yield Online(**vars(gateway), engine=engine)
