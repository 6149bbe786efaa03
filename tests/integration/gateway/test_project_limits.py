"""What a project may have at once; its neighbour is not concerned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import event, text

from api.batch_errors import TooManyBatches
from api.batch_shapes import CreateBatch
from batch.intake import project_limits
from batch.intake.create import create
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.conftest import Online

CHAT = "/v1/chat/completions"


async def limit(database: Database, **limits: int | None) -> None:
    async with database.unit_of_work() as session:
        for name, value in limits.items():
            await session.execute(
                text(f"UPDATE projects SET {name} = :value WHERE id = 'proj_default'"),
                {"value": value},
            )


def caller(api: Api, key: str) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=api.base_url, headers=headers, timeout=30)


async def upload(
    http: httpx.AsyncClient, content: bytes = b"{}", path: str = "/files"
) -> httpx.Response:
    return await http.post(path, data={"purpose": "batch"}, files={"file": ("in", content)})


async def new_batch(http: httpx.AsyncClient, file_id: str, **more: Any) -> httpx.Response:
    body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **more}
    return await http.post("/batches", json=body)


def code_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


@pytest.mark.parametrize("name", ["live_batches", "batches_per_hour"])
async def test_a_project_has_so_many_batches(api: Api, database: Database, name: str) -> None:
    async with caller(api, api.key) as http, caller(api, api.other_key) as other:
        file_id = (await upload(http)).json()["id"]
        await limit(database, **{name: 2})
        # At once: two of them find room, whoever is first.
        made = await asyncio.gather(*(new_batch(http, file_id) for _ in range(4)))
        assert sorted(reply.status_code for reply in made) == [200, 200, 429, 429]
        for reply in made:
            if reply.status_code == 429:
                assert code_of(reply) == (429, "batch_limit_exceeded")
        assert (await new_batch(other, (await upload(other)).json()["id"])).status_code == 200
        async with database.unit_of_work() as session:
            column = (
                "status = 'cancelled'"
                if name == "live_batches"
                else ("created_at = created_at - interval '61 minutes'")
            )
            await session.execute(text(f"UPDATE batches SET {column}"))
        assert (await new_batch(http, file_id)).status_code == 200, "room again"


async def test_a_project_stores_so_many_bytes(api: Api, database: Database) -> None:
    async with caller(api, api.key) as http, caller(api, api.other_key) as other:
        await limit(database, stored_bytes=1000)
        first = await upload(http, b"x" * 600)
        assert first.status_code == 200
        assert code_of(await upload(http, b"x" * 401)) == (429, "storage_limit_exceeded")
        assert (await upload(http, b"x" * 400)).status_code == 200
        assert code_of(await upload(http, b"x")) == (429, "storage_limit_exceeded")
        assert (await upload(other, b"x" * 5000)).status_code == 200
        assert len(list(api.files_folder.rglob("file-*"))) == 3, "no bytes of those refused"
        await http.delete(f"/files/{first.json()['id']}")
        assert (await upload(http, b"x" * 600)).status_code == 200


async def test_a_project_has_so_many_requests_in_flight(online: Online, database: Database) -> None:
    await limit(database, concurrent_requests=1)
    body = online.chat("fake:tokens=2 fake:token_ms=60000", stream=True)
    async with online.http() as http, online.http() as again:
        async with http.stream("POST", CHAT, json=body) as reply:
            assert reply.status_code == 200
            await online.until_engine_is_busy()
            refused = await again.post(CHAT, json=online.chat("hi"))
            assert code_of(refused) == (429, "rate_limit_exceeded")
        async with asyncio.timeout(20):
            while (await again.post(CHAT, json=online.chat("hi"))).status_code != 200:
                await asyncio.sleep(0.02)  # until the gateway has seen the caller go


async def test_limits_are_set_and_shown(api: Api, database: Database) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE api_keys SET role = 'admin'"))
    limits: dict[str, Any] = {"concurrent_requests": 5, "live_batches": 6, "batches_per_hour": 7}
    limits |= {"stored_bytes": 8, "models": ["a", "b"]}
    async with caller(api, api.key) as http:
        path = "/organization/projects/proj_default"
        changed = await http.post(path, json={"coserve": limits})
        assert changed.status_code == 200, changed.text
        assert limits.items() <= (await http.get(path)).json()["coserve"].items()
        wrong = await http.post(path, json={"coserve": {"live_batches": -1}})
        assert wrong.json()["error"]["param"] == "coserve.live_batches"
        wrong = await http.post(path, json={"coserve": {"models": [""]}})
        assert wrong.json()["error"]["param"] == "coserve.models"


async def test_a_project_uses_the_models_that_it_is_given(
    online: Online, database: Database
) -> None:
    body = online.chat("hi")
    line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": body}
    async with online.http() as http:
        file_id = (await upload(http, orjson.dumps(line), "/v1/files")).json()["id"]
        wanted = {"input_file_id": file_id, "endpoint": CHAT}
        assert (await http.post("/v1/batches/check", json=wanted)).json()["valid"]
        async with database.unit_of_work() as session:
            await session.execute(text("UPDATE projects SET models = '{another}'"))
        async with asyncio.timeout(30):  # keys are looked up anew within seconds
            while (await http.get("/v1/models")).json()["data"]:
                await asyncio.sleep(0.1)
        assert code_of(await http.get(f"/v1/models/{body['model']}")) == (404, "model_not_found")
        assert code_of(await http.post(CHAT, json=body)) == (404, "model_not_found")
        checked = (await http.post("/v1/batches/check", json=wanted)).json()
        assert [fault["code"] for fault in checked["errors"]["data"]] == ["model_not_found"]
        async with database.unit_of_work() as session:
            await session.execute(
                text("UPDATE projects SET models = ARRAY[:name]"),
                {"name": body["model"]},
            )
        async with asyncio.timeout(30):
            while (await http.post(CHAT, json=body)).status_code != 200:
                await asyncio.sleep(0.1)


async def test_a_project_without_limits_of_its_own_has_those_of_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert min(project_limits.LIVE_BATCHES, project_limits.BATCHES_PER_HOUR) >= 10_000
    monkeypatch.setattr(project_limits, "BATCHES_PER_HOUR", 3)
    monkeypatch.setattr(project_limits, "LIVE_BATCHES", 2)
    async with caller(api, api.key) as http, caller(api, api.other_key) as other:
        file_id = (await upload(http)).json()["id"]
        made = [await new_batch(http, file_id) for _ in range(3)]
        assert [reply.status_code for reply in made] == [200, 200, 429]
        assert "the limit is 2" in made[2].json()["error"]["message"]
        await http.post(f"/batches/{made[0].json()['id']}/cancel")
        assert (await new_batch(other, (await upload(other)).json()["id"])).status_code == 200
        monkeypatch.setattr(project_limits, "LIVE_BATCHES", 10)
        assert (await new_batch(http, file_id)).status_code == 200
        refused = await new_batch(http, file_id)
        assert code_of(refused) == (429, "batch_limit_exceeded")
        assert "within an hour; the limit is 3" in refused.json()["error"]["message"]


@contextmanager
def statements_of(api: Api) -> Iterator[list[str]]:
    """What the gateway asks the database for, commits too."""
    seen: list[str] = []

    def on_statement(_: object, __: object, statement: str, *___: object) -> None:
        seen.append(statement)

    def on_commit(_: object) -> None:
        seen.append("COMMIT")

    engine = api.app.state.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", on_statement)
    event.listen(engine, "commit", on_commit)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", on_statement)
        event.remove(engine, "commit", on_commit)


async def test_creations_of_a_project_wait_for_each_other_as_briefly_as_they_can(api: Api) -> None:
    """Counted in what is asked from the lock to the commit: nothing that only readers need."""
    async with caller(api, api.key) as http:
        file_id = (await upload(http)).json()["id"]
        with statements_of(api) as seen:
            assert (await new_batch(http, file_id)).status_code == 200
    locked = next(place for place, one in enumerate(seen) if "UPDATE projects" in one)
    held = seen[locked : seen.index("COMMIT", locked)]
    assert "INSERT INTO batches" in held[0], "it has the lock for no question before"
    assert ["INSERT INTO audit_log" in one for one in held[1:]] == [True]


async def test_what_a_creation_asks_does_not_grow_with_the_batches(
    api: Api, database: Database
) -> None:
    async with caller(api, api.key) as http:
        file_id = (await upload(http)).json()["id"]
        assert (await new_batch(http, file_id)).status_code == 200
        with statements_of(api) as seen:
            for _ in range(20):
                assert (await new_batch(http, file_id)).status_code == 200
    asked = [one for one in seen if "files" in one or "batches" in one or "audit_log" in one]
    asked = [one for one in asked if "backlog_bytes" not in one]  # which all requests share
    assert [one for one in asked if "UPDATE projects" not in one and "count(" in one] == []
    assert len(asked) <= 4 * 20 + 5, "the file, its name, the batch and the audit log"
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT max(batches_made) FROM projects")) == 21


async def test_several_gateways_keep_one_limit(
    database: Database, database_url: str, api: Api
) -> None:
    """Each goes on from a count of its own, which others have long outdated."""
    async with caller(api, api.key) as http:
        file_id = (await upload(http)).json()["id"]
    wanted = CreateBatch(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
    gateways = [Database(database_url) for _ in range(3)]

    async def create_in(gateway: Database) -> bool:
        try:
            async with gateway.unit_of_work() as session:
                await create(session, "proj_default", wanted)
        except TooManyBatches:
            return False
        return True

    try:
        await limit(database, live_batches=30)
        assert all([await create_in(one) for one in gateways])
        made = await asyncio.gather(*(create_in(one) for one in gateways * 15))
        assert sum(made) == 30 - len(gateways)
        # A limit holds from the next creation on, whatever was counted before.
        async with database.unit_of_work() as session:
            await session.execute(text("UPDATE batches SET status = 'cancelled'"))
        assert all([await create_in(one) for one in gateways])
        await limit(database, live_batches=4)
        assert sorted([await create_in(one) for one in gateways]) == [False, False, True]
        await limit(database, live_batches=None, batches_per_hour=30)
        assert not any([await create_in(one) for one in gateways])
        await limit(database, batches_per_hour=36)
        made = await asyncio.gather(*(create_in(one) for one in gateways * 3))
        assert sum(made) == 36 - 30 - 4
    finally:
        for one in gateways:
            await one.dispose()


async def test_what_is_rolled_back_does_not_count(database: Database, api: Api) -> None:
    async with caller(api, api.key) as http:
        file_id = (await upload(http)).json()["id"]
        await limit(database, live_batches=2)
        wanted = CreateBatch(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        for _ in range(5):
            with suppress(ZeroDivisionError):
                async with database.unit_of_work() as session:
                    await create(session, "proj_default", wanted)
                    raise ZeroDivisionError
        made = [(await new_batch(http, file_id)).status_code for _ in range(3)]
        assert made == [200, 200, 429]
