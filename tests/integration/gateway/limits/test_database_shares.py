"""A project whose reads hang holds its share of the database's connections, and no more."""

from __future__ import annotations

import asyncio
import contextvars

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from gateway.limits.database_shares import DatabaseShares
from service.asking import asks_for
from store.session import Database
from tests.fixtures.batches import PATIENCE_S
from tests.fixtures.live_gateway import Api


def _http(api: Api, key: str | None = None) -> httpx.AsyncClient:
    sdk = api.client() if key is None else api.client(key)
    headers = {"Authorization": f"Bearer {sdk.api_key}"}
    return httpx.AsyncClient(base_url=str(sdk.base_url), headers=headers, timeout=PATIENCE_S)


async def test_others_are_answered_while_all_reads_of_one_project_hang(
    api: Api, database: Database
) -> None:
    async with _http(api) as slow, _http(api, api.other_key) as other:
        assert (await slow.get("files")).status_code == 200
        async with database.unit_of_work() as locked:
            await locked.execute(text("LOCK TABLE files IN ACCESS EXCLUSIVE MODE"))
            reads = [asyncio.ensure_future(slow.get("files")) for _ in range(24)]
            async with asyncio.timeout(PATIENCE_S):
                while await locked.scalar(_HANGING) == 0:
                    await asyncio.sleep(0.05)
            for path in ("batches", "conversations/conv_none", "responses/resp_none"):
                assert (await other.get(path)).status_code in (200, 404)
        told = {reply.status_code for reply in await asyncio.gather(*reads)}
        assert 200 in told
        assert told <= {200, 503}


_HANGING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    " AND datname = current_database()"
)


async def test_who_waits_too_long_is_told_what_an_empty_pool_tells() -> None:
    shares = DatabaseShares(1, limit_s=0.05)

    async def ask() -> None:
        async with shares.place():
            raise AssertionError("there is no place")

    asks_for("proj_a")
    async with shares.place():
        other = contextvars.Context()
        other.run(asks_for, "proj_b")
        with pytest.raises(NoConnectionFree):
            await asyncio.create_task(ask(), context=other)  # noqa: TID251 - a request of its own


async def test_a_transaction_within_another_goes_along_with_it() -> None:
    shares = DatabaseShares(1, limit_s=0.05)
    asks_for("proj_a")
    async with shares.place(), shares.place():
        pass
    async with shares.place():
        pass
