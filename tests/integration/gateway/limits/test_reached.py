"""Receivers that cannot be reached may be named ten times a minute, in every way to name one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from redis.asyncio import Redis

from gateway.limits.reached import UNREACHED_PER_MINUTE
from gateway.limits.valkey import SINCE_KEY
from store.models import DEFAULT_PROJECT_ID
from tests.fixtures.live_gateway import Api

PATH = "/webhook_endpoints"
GOOD = {"name": "n", "url": "https://1.1.1.1/", "event_types": ["batch.failed"]}
UNKNOWN = {**GOOD, "url": "https://receiver.example/"}


@pytest.fixture
async def unknown_names(monkeypatch: pytest.MonkeyPatch, broker_url: str) -> AsyncIterator[None]:
    """No name server answers, and Valkey has kept its state for long."""
    monkeypatch.setenv("COSERVE_WEBHOOK_NAMESERVERS", "127.0.0.1:1")
    async with Redis.from_url(broker_url) as client:
        await client.set(SINCE_KEY, 1)
        yield
        await client.delete(f"coserve:rate:{DEFAULT_PROJECT_ID}:unreached")


@pytest.mark.usefixtures("unknown_names")
async def test_refusals_are_counted_and_nothing_else(api: Api) -> None:
    def caller(key: str) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=api.base_url, headers=headers, timeout=30)

    async with caller(api.key) as mine, caller(api.other_key) as other:
        endpoint_id = (await mine.post(PATH, json=GOOD)).json()["id"]
        for _ in range(2 * UNREACHED_PER_MINUTE):  # told from the URL alone: these cost nothing
            refused = await mine.post(PATH, json={**GOOD, "url": "https://10.0.0.1/"})
            assert refused.status_code == 400
        for n in range(UNREACHED_PER_MINUTE):
            path = PATH if n % 2 else f"{PATH}/{endpoint_id}"
            refused = await mine.post(path, json=UNKNOWN)
            assert refused.status_code == 400, refused.text
            assert refused.json()["error"]["code"] == "invalid_webhook_url"
        for path, body in (
            (PATH, UNKNOWN),
            (f"{PATH}/{endpoint_id}", UNKNOWN),
            (f"{PATH}/{endpoint_id}/test", {"event_type": "batch.failed"}),
        ):
            limited = await mine.post(path, json=body)
            assert limited.status_code == 429, limited.text
            assert limited.json()["error"]["code"] == "rate_limit_exceeded"
            assert 1 <= int(limited.headers["retry-after"]) <= 6
        assert (await other.post(PATH, json=UNKNOWN)).status_code == 400, "a limit of each project"
        assert (await mine.get(f"{PATH}/{endpoint_id}")).status_code == 200
