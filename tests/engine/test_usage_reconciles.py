"""Usage beside the real engine's own count of the tokens it computed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID
from store.repositories import usage as usages
from store.session import Database
from tests.fixtures.engine import RunningEngine
from tests.fixtures.online import Gateway

pytestmark = pytest.mark.thorough

PROMPT_TOKENS = 24
NUM_WHOLE = 8
NUM_CUT = 8
NUM_BEGUN = 4
"""Tokens of each answer, in the mean, that the engine has made before the first one is cut."""
STEPS_IN_FLIGHT = 2
"""How many tokens a request may have computed that its abort found unfinished."""


@pytest_asyncio.fixture
async def client(engine: RunningEngine) -> AsyncIterator[HttpEngineClient]:
    made = HttpEngineClient(engine.url)
    yield made
    await made.close()


async def computed(client: HttpEngineClient) -> int:
    """Tokens computed for online requests since the engine's start, once it is at rest."""
    while await client.live_rids():
        await asyncio.sleep(0.05)
    return await online_tokens(client)


async def online_tokens(client: HttpEngineClient) -> int:
    """Tokens computed for online requests so far."""
    return int((await client.facts()).raw["coserve"]["online_tokens"])


async def used(database: Database, num_requests: int) -> tuple[int, int]:
    """Prompt and completion tokens, once so many requests have been written."""
    until = time.monotonic() + 20
    while True:
        async with database.unit_of_work() as session:
            rows = await usages.list_for(session, DEFAULT_PROJECT_ID)
        written = sum(row.num_requests for row in rows)
        if written >= num_requests:
            break
        assert time.monotonic() < until, f"{written} of {num_requests} requests are written"
        await asyncio.sleep(0.1)
    return sum(row.prompt_tokens for row in rows), sum(row.completion_tokens for row in rows)


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_and_whole_answers(
    gateway: Gateway, client: HttpEngineClient, database: Database, stream: bool
) -> None:
    """Prompts of random token ids share no beginning, so that none of them is found in a cache."""
    dice = random.Random(12 + stream)
    # One client, made before any time is taken: each reads its certificates first.
    http = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None))
    begun = asyncio.Event()

    async def ask(max_tokens: int, patience_s: float | None = None) -> bool:
        """Whether it was cut, so long after the engine began with those that are."""
        body: dict[str, Any] = {
            "model": gateway.model,
            "prompt": [dice.randrange(100, 40_000) for _ in range(PROMPT_TOKENS)],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": stream,
        }
        headers = {"authorization": f"Bearer {gateway.key}"}
        asking = group.create_task(
            http.post(f"{gateway.url}/v1/completions", json=body, headers=headers)
        )
        if patience_s is not None:
            await begun.wait()
            await asyncio.wait({asking}, timeout=patience_s)
            if asking.cancel():
                await asyncio.wait({asking})
                return True
        reply = await asking
        assert reply.status_code == 200, reply.text
        return False

    before = await computed(client)
    group = asyncio.TaskGroup()
    async with http, group:
        tasks = [group.create_task(ask(1500, dice.uniform(0.5, 1.5))) for _ in range(NUM_CUT)]
        # A request cut before it reached the engine costs nothing, and is no line of usage.
        async with asyncio.timeout(20):
            while await online_tokens(client) - before < NUM_CUT * (PROMPT_TOKENS + NUM_BEGUN):
                await asyncio.sleep(0.05)
        tasks += [group.create_task(ask(20)) for _ in range(NUM_WHOLE)]
        begun.set()
    assert sum(task.result() for task in tasks) == NUM_CUT
    num_requests = NUM_WHOLE + NUM_CUT
    prompt_tokens, completion_tokens = await used(database, num_requests)
    assert prompt_tokens == num_requests * PROMPT_TOKENS
    assert completion_tokens > NUM_WHOLE * 20
    # The last token of an answer is chosen and never computed.
    expected = prompt_tokens + completion_tokens - num_requests
    surplus = await computed(client) - before - expected
    assert 0 <= surplus <= NUM_CUT * STEPS_IN_FLIGHT
