"""How old the counts of a running batch are (row R-26)."""

from __future__ import annotations

import asyncio
import time

import pytest

from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line
from tests.integration.gateway.conftest import MODEL, Online

MAX_AGE_S = 1.0
NUM_ROWS = 40
STEP_MS = 60
"""Each row ends so much later than the one before."""


@pytest.mark.contract("R-26")
async def test_counts_are_fresh_while_it_runs(online: Online, database: Database) -> None:
    bench = Bench(database)
    lines = [
        line(str(i), f"fake:tokens=2 fake:token_ms={i * STEP_MS}").replace(
            b'"fake-model"', f'"{MODEL}"'.encode()
        )
        for i in range(NUM_ROWS)
    ]
    batch_id = await add_batch(database, bench.file_store, lines, model=MODEL)
    client = HttpEngineClient(online.app.state.engines.members[0].url)
    seen: set[int] = set()
    answered: list[tuple[float, int]] = []
    async with online.http() as http, asyncio.TaskGroup() as group:
        running = group.create_task(bench.dispatch(client))
        while not running.done():
            # Every row has its first token at once; its second is its end.
            tokens = online.engine.served.get("offline")
            num_answered = max(0, tokens.completion_tokens - NUM_ROWS) if tokens else 0
            answered.append((time.monotonic(), num_answered))
            reply = await http.get(f"/v1/batches/{batch_id}")
            counts = reply.json()["request_counts"]
            old = [num for at, num in answered if at <= time.monotonic() - MAX_AGE_S]
            assert counts["completed"] >= max(old, default=0)
            seen.add(counts["completed"])
            await asyncio.sleep(0.05)
    await client.close()
    assert len(seen) > 3, "it was never looked at while it ran"
