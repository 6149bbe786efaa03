from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.coserve_bench.engine_run import EngineFailed, RunningEngine, wait_profile

LOG = """\
[2026-01-01 00:00:01] Prefill batch, #new-seq: 2, #new-token: 512, #cached-token: 3, token usage: 0
[2026-01-01 00:00:02] Decode batch, #running-req: 2, #token: 1432, token usage: 0.09
[2026-01-01 00:00:03] Prefill batch, #new-seq: 1, #new-token: 88, #cached-token: 0, token usage: 0
"""


class Engine(RunningEngine):
    """An engine whose state is given."""

    state: dict[str, Any] = {}

    async def server_info(self) -> dict[str, Any]:
        return {"internal_states": [self.state]}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    log = tmp_path / "engine.log"
    log.write_text(LOG)
    return Engine("http://127.0.0.1:1", log, 0, 0.0)


async def test_stock_sglang_is_read_off_its_log(engine: Engine) -> None:
    assert await engine.tokens_computed() == 600


async def test_the_runtime_counts_itself(engine: Engine) -> None:
    engine.state = {"coserve": {"offline_tokens": 1000, "recomputed_tokens": 40}}
    assert await engine.tokens_computed() == 960


@pytest.fixture
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that lives as long as the test."""
    living = await asyncio.create_subprocess_exec("sleep", "600")
    yield living
    living.kill()
    await living.wait()


async def test_stock_sglang_is_not_measured_as_ours(
    engine: Engine, process: asyncio.subprocess.Process
) -> None:
    with pytest.raises(EngineFailed, match="without our scheduler"):
        await wait_profile(engine, process)


async def test_an_engine_with_its_profile_is_measured(
    engine: Engine, process: asyncio.subprocess.Process
) -> None:
    engine.state = {"coserve": {"profile": {"state": "ready"}}}
    await wait_profile(engine, process)
