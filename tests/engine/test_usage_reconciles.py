"""Usage beside the real engine's own count of the tokens it computed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from engine_adapter.client.http import HttpEngineClient
from engine_adapter.liveness import verify_engine
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import usage as usages
from store.session import Database
from tests.fixtures.engine import START_LIMIT_S, RunningEngine
from tests.fixtures.online import Gateway, running_gateway

PROMPT_TOKENS = 24
NUM_WHOLE = 8
NUM_CUT = 8
STEPS_IN_FLIGHT = 2
"""How many tokens a request may have computed that its abort found unfinished."""


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


@pytest_asyncio.fixture
async def client(engine: RunningEngine) -> AsyncIterator[HttpEngineClient]:
    made = HttpEngineClient(engine.url)
    yield made
    await made.close()


async def computed(client: HttpEngineClient) -> int:
    """Tokens computed for online requests since the engine's start, once it is at rest."""
    while await client.live_rids():
        await asyncio.sleep(0.05)
    return int((await client.facts()).raw["coserve"]["online_tokens"])


async def used(database: Database, num_requests: int) -> tuple[int, int]:
    """Prompt and completion tokens, once so many requests have been written."""
    async with asyncio.timeout(20):
        while True:
            async with database.unit_of_work() as session:
                rows = await usages.list_for(session, DEFAULT_PROJECT_ID)
            if sum(row.num_requests for row in rows) >= num_requests:
                break
            await asyncio.sleep(0.1)
    return sum(row.prompt_tokens for row in rows), sum(row.completion_tokens for row in rows)


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_and_whole_answers(
    gateway: Gateway, client: HttpEngineClient, database: Database, stream: bool
) -> None:
    """Prompts of random token ids share no beginning, so that none of them is found in a cache."""
    dice = random.Random(12 + stream)

    async def ask(max_tokens: int, patience_s: float) -> bool:
        body: dict[str, Any] = {
            "model": gateway.model,
            "prompt": [dice.randrange(100, 40_000) for _ in range(PROMPT_TOKENS)],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": stream,
        }
        headers = {"authorization": f"Bearer {gateway.key}"}
        async with httpx.AsyncClient(timeout=60) as http:
            try:
                async with asyncio.timeout(patience_s):
                    reply = await http.post(
                        f"{gateway.url}/v1/completions", json=body, headers=headers
                    )
                    assert reply.status_code == 200, reply.text
            except TimeoutError:
                return True
        return False

    before = await computed(client)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(20, 60)) for _ in range(NUM_WHOLE)]
        tasks += [group.create_task(ask(1500, dice.uniform(0.5, 1.5))) for _ in range(NUM_CUT)]
    assert sum(task.result() for task in tasks) == NUM_CUT
    num_requests = NUM_WHOLE + NUM_CUT
    prompt_tokens, completion_tokens = await used(database, num_requests)
    assert prompt_tokens == num_requests * PROMPT_TOKENS
    assert completion_tokens > NUM_WHOLE * 20
    # The last token of an answer is chosen and never computed.
    expected = prompt_tokens + completion_tokens - num_requests
    surplus = await computed(client) - before - expected
    assert 0 <= surplus <= NUM_CUT * STEPS_IN_FLIGHT
