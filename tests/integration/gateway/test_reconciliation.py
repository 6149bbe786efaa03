"""Usage is what the engine served, to the token, however requests end."""

from __future__ import annotations

import asyncio
import random

import httpx
import pytest

from api.usage import TokenUsage
from gateway.lifespan import FLUSH_S
from store.models import DEFAULT_PROJECT_ID, Usage
from store.repositories import usage as usages
from store.session import Database
from tests.integration.gateway.conftest import Online

NUM_REQUESTS = 120


async def rows_of(database: Database, num_requests: int) -> list[Usage]:
    """Counters, once so many requests have been written."""
    async with asyncio.timeout(20):
        while True:
            async with database.unit_of_work() as session:
                rows = list(await usages.list_for(session, DEFAULT_PROJECT_ID))
            if sum(row.num_requests for row in rows) >= num_requests:
                return rows
            await asyncio.sleep(0.05)


def by_class(rows: list[Usage]) -> dict[str, TokenUsage]:
    sums: dict[str, TokenUsage] = {}
    for row in rows:
        used = TokenUsage(row.prompt_tokens, row.completion_tokens)
        sums[row.request_class] = sums.get(row.request_class, TokenUsage()) + used
    return sums


async def test_a_whole_answer_that_is_cut_counts(online: Online, database: Database) -> None:
    async with online.http() as http:
        asking = asyncio.ensure_future(
            http.post(
                "/v1/chat/completions", json=online.chat("a b fake:tokens=500 fake:token_ms=10")
            )
        )
        async with asyncio.timeout(5):
            while not online.engine.served or online.engine.served["online"].completion_tokens < 5:
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    used = by_class(await rows_of(database, 1))["online"]
    assert used == online.engine.served["online"]
    assert used.prompt_tokens == 4
    assert 5 <= used.completion_tokens < 500


@pytest.mark.contract("S-19")
async def test_random_ends_reconcile_to_the_token(online: Online, database: Database) -> None:
    """Whole and streamed answers of both classes; a third of them cut at a random moment."""
    dice = random.Random(7)
    num_cut = 0

    async def ask(stream: bool, tier: str, num_tokens: int, patience_s: float) -> None:
        nonlocal num_cut
        prompt = f"{'w ' * dice.randrange(9)}fake:tokens={num_tokens} fake:token_ms=4"
        body = online.chat(prompt, stream=stream, service_tier=tier)
        async with httpx.AsyncClient(timeout=30) as http:
            headers = {"authorization": f"Bearer {online.key}"}
            try:
                async with asyncio.timeout(patience_s):
                    url = f"{online.url}/v1/chat/completions"
                    async with http.stream("POST", url, json=body, headers=headers) as reply:
                        assert reply.status_code == 200
                        async for _ in reply.aiter_bytes():
                            pass
            except TimeoutError:
                num_cut += 1

    async with asyncio.TaskGroup() as group:
        for i in range(NUM_REQUESTS):
            cut = i % 3 == 0
            group.create_task(
                ask(
                    stream=bool(i % 2),
                    tier="flex" if i % 5 == 0 else "default",
                    num_tokens=400 if cut else dice.randrange(1, 60),
                    patience_s=dice.uniform(0.05, 1.0) if cut else 30,
                )
            )
    await online.until_engine_is_free(limit_s=10)
    # Some went away before their request was read; every other one counts, and once.
    rows = await rows_of(database, NUM_REQUESTS - num_cut)
    async with asyncio.timeout(10):
        while by_class(rows) != online.engine.served:
            await asyncio.sleep(0.1)
            rows = await rows_of(database, 1)
    await asyncio.sleep(1.5 * FLUSH_S)
    rows = await rows_of(database, 1)
    assert by_class(rows) == online.engine.served
    assert num_cut >= NUM_REQUESTS // 4
    assert sum(row.num_requests for row in rows) <= NUM_REQUESTS


async def test_a_caller_that_goes_away_before_its_body_is_read_is_no_error(online: Online) -> None:
    host, port = online.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n"
        f"authorization: Bearer {online.key}\r\ncontent-type: application/json\r\n"
        "content-length: 1000\r\n\r\n{"
    )
    writer.write(head.encode())
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    async with asyncio.timeout(5), online.http() as http:
        while 'status="499"' not in (metrics := (await http.get("/metrics")).text):
            await asyncio.sleep(0.05)
    assert 'status="500"' not in metrics
    assert "coserve_disconnects_total 1.0" in metrics


async def test_choices_cut_by_the_failure_of_another_count(
    online: Online, database: Database
) -> None:
    """Two prompts; the second one fails while the first is being answered."""
    long = "a fake:tokens=400 fake:token_ms=10"
    broken = "fake:tokens=9 fake:token_ms=40 fake:die_after=5"
    body = {"model": online.model, "prompt": [long, broken], "max_tokens": 400}
    async with online.http() as http:
        reply = await http.post("/v1/completions", json=body)
    assert reply.status_code == 503
    used = by_class(await rows_of(database, 1))["online"]
    served = online.engine.served["online"]
    # What the broken connection took with it nobody told: its prompt of three, five tokens.
    assert used == TokenUsage(served.prompt_tokens - 3, served.completion_tokens - 5)
    assert used.completion_tokens > 5
