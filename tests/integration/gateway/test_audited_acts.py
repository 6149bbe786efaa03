"""Acts through the API are in the audit log and, those on batches, in the batch's events."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch
from sqlalchemy import select

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from store.models import DEFAULT_ORGANIZATION_ID, AuditEntry, WebhookDelivery
from store.repositories import audit, event
from store.session import Database
from tests.fixtures.batches import add_batch, add_project
from tests.fixtures.live_gateway import Api
from tests.fixtures.webhooks import add_endpoint
from tests.integration.gateway.test_batch_steering import live_batch, steer
from tests.integration.gateway.test_batches import CHAT, line, upload


async def entries(database: Database) -> list[AuditEntry]:
    """The whole log, the oldest first."""
    async with database.unit_of_work() as session:
        found = await audit.page(session, DEFAULT_ORGANIZATION_ID, limit=100)
    return [entry for entry, _ in found[::-1]]


async def receivers(database: Database, batch_id: str) -> list[str]:
    """The endpoints that something of the batch is sent to."""
    async with database.unit_of_work() as session:
        query = select(WebhookDelivery.endpoint_id).where(WebhookDelivery.batch_id == batch_id)
        return list((await session.execute(query)).scalars())


async def events(api: Api, batch_id: str, **query: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=api.base_url) as http:
        headers = {"authorization": f"Bearer {api.key}"}
        reply = await http.get(f"/batches/{batch_id}/events", params=query, headers=headers)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def test_what_a_key_does_to_batches(api: Api, database: Database) -> None:
    async with api.client() as client:
        batch_id = await live_batch(api, database, client)
        await steer(client, batch_id, "pause")
        await steer(client, batch_id, "resume")
        await steer(client, batch_id, "priority", priority=-7)
        await client.batches.cancel(batch_id)
        with pytest.raises(openai.ConflictError):
            await steer(client, batch_id, "pause")
        input_id = (await client.batches.retrieve(batch_id)).input_file_id
        key = (await client.files.with_raw_response.list()).headers["x-request-id"]
    found = await entries(database)
    assert [(one.action, one.detail) for one in found] == [
        ("batch.created", {"data": {"input_file_id": input_id}}),
        ("batch.paused", None),
        ("batch.resumed", None),
        ("batch.updated", {"changes_requested": {"priority": -7}}),
        ("batch.cancelled", None),
    ]
    for one in found:
        assert (one.source, one.actor_name, one.target_id) == ("api", "mine", batch_id)
        assert (one.project_id, one.address) == ("proj_default", "127.0.0.1")
        assert one.request_id not in (None, key)


async def test_the_events_of_a_batch_name_who_did_them(api: Api, database: Database) -> None:
    async with api.client() as client:
        batch_id = await live_batch(api, database, client)
        await steer(client, batch_id, "pause")
        await steer(client, batch_id, "priority", priority=3)
    whole = await events(api, batch_id)
    said = [(one["event"], one["to_status"], one["actor"]) for one in whole["data"]]
    assert said == [
        ("created", "validating", "mine (api)"),
        ("in_progress", "in_progress", None),
        ("paused", None, "mine (api)"),
        ("priority_changed", None, "mine (api)"),
    ]
    first = await events(api, batch_id, limit=3)
    assert first["has_more"]
    rest = await events(api, batch_id, limit=3, after=first["last_id"])
    assert not rest["has_more"]
    assert first["data"] + rest["data"] == whole["data"]


async def test_events_of_others_and_of_nothing(api: Api, database: Database) -> None:
    async with api.client() as client, api.client(api.other_key) as stranger:
        batch_id = await live_batch(api, database, client)
        for asking, name in ((stranger, batch_id), (client, "batch_no"), (client, "no%20id")):
            with pytest.raises(openai.NotFoundError):
                await asking.get(f"/batches/{name}/events", cast_to=Batch)
        for after in ("7", "bevent_x", "bevent_" + "9" * 30, "bevent_²"):
            options: Any = {"params": {"after": after}}
            path = f"/batches/{batch_id}/events"
            with pytest.raises(openai.NotFoundError) as refused:
                await client.get(path, cast_to=Batch, options=options)
            assert refused.value.param == "after"


async def test_an_operators_name_is_for_operators(api: Api, database: Database) -> None:
    async with database.unit_of_work(actor="olga (dashboard)") as session:
        batch_id = await add_batch(database, api.app.state.file_store, [line("a")])
        await event.append(session, batch_id, "paused")
    told = await events(api, batch_id)
    assert told["data"][-1]["actor"] == "an operator (dashboard)"


async def test_a_retry_and_the_same_batch_again(api: Api, database: Database) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        wanted: dict[str, Any] = {
            "input_file_id": file_id,
            "endpoint": CHAT,
            "completion_window": "24h",
            "extra_headers": {"idempotency-key": "once"},
        }
        made = await client.batches.create(**wanted)
        assert (await client.batches.create(**wanted)).id == made.id
        await validate(database, api.app.state.file_store, made.id)
        await client.batches.cancel(made.id)
        await client.files.delete(await upload(client, line("b")))
    found = await entries(database)
    assert [one.action for one in found] == ["batch.created", "batch.cancelled", "file.deleted"]


async def test_webhook_endpoints(api: Api, database: Database) -> None:
    async with api.client() as client:
        made = await client.webhooks.create(
            name="mine", url="https://1.1.1.1/?token=hidden", event_types=["batch.completed"]
        )
        await client.webhooks.update(made.id, name="other")
        await client.webhooks.rotate_secret(made.id)
        await client.webhooks.delete(made.id)
    found = await entries(database)
    assert [one.action for one in found] == [
        "webhook_endpoint.created",
        "webhook_endpoint.updated",
        "webhook_endpoint.secret_rotated",
        "webhook_endpoint.deleted",
    ]
    assert {one.target_id for one in found} == {made.id}
    assert "hidden" not in str([one.detail for one in found])


async def test_a_batch_chooses_who_hears_of_its_end(api: Api, database: Database) -> None:
    chosen = await add_endpoint(database, "http://127.0.0.1:1/a")
    await add_endpoint(database, "http://127.0.0.1:1/b")
    theirs = await add_project(database, "proj_theirs")
    foreign = await add_endpoint(database, "http://127.0.0.1:1/c", project_id=theirs)
    async with api.client() as client:
        file_id = await upload(client, line("a"))

        async def create(endpoints: list[str] | None) -> Batch:
            return await client.batches.create(
                input_file_id=file_id,
                endpoint=CHAT,
                completion_window="24h",
                extra_body={"coserve": {"webhook_endpoints": endpoints}},
            )

        for unknown in (foreign.id, "we_nothing", "no id"):
            with pytest.raises(openai.BadRequestError) as refused:
                await create([chosen.id, unknown])
            assert refused.value.param == "coserve.webhook_endpoints"
        heard = {}
        for name, wanted in (("one", [chosen.id]), ("none", []), ("all", None)):
            made = await create(wanted)
            assert (made.model_extra or {})["coserve"]["webhook_endpoints"] == wanted
            await validate(database, api.app.state.file_store, made.id)
            await client.batches.cancel(made.id)
            await finalize(database, api.app.state.file_store, made.id)
            heard[name] = await receivers(database, made.id)
    assert (heard["one"], heard["none"], len(heard["all"])) == ([chosen.id], [], 2)
