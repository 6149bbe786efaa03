"""What an operator does to batches is in the audit log: who, to what, and whose it is."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from gateway.settings import GatewaySettings
from store.models import DEFAULT_ORGANIZATION_ID, AuditEntry, Batch, Project
from store.repositories import audit
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import add_project, add_validating, line, read_batch
from tests.fixtures.dashboard import Site, token_in

ENDPOINT = "/v1/chat/completions"


async def entries(site: Site) -> list[AuditEntry]:
    """What was done to batches, the oldest first."""
    async with site.bench.database.unit_of_work() as session:
        found = await audit.page(session, DEFAULT_ORGANIZATION_ID, limit=100)
    return [entry for entry, _ in found[::-1] if entry.action.startswith("batch.")]


async def of_another_project(site: Site, *lines: bytes) -> Batch:
    """A validated batch of a project that is not the operator's."""
    project = await add_project(site.bench.database, "proj_other")
    database, store = site.bench.database, site.bench.file_store
    batch_id = await add_validating(database, store, lines, project_id=project)
    await validate(database, store, batch_id)
    return await read_batch(database, batch_id)


async def run_to_its_end(site: Site, batch_id: str) -> None:
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    assert await finalize(site.bench.database, site.bench.file_store, batch_id)


async def press(client: httpx.AsyncClient, batch_id: str, act: str, **fields: Any) -> int:
    token = token_in((await client.get("/admin/batches")).text)
    path = f"/admin/batches/{batch_id}/{act}"
    return (await client.post(path, data={"csrf_token": token, **fields})).status_code


async def test_who_steered_whose_batch(site: Site) -> None:
    batch = await of_another_project(site, line("a"))
    acts = {
        "pause": ("batch.paused", None),
        "resume": ("batch.resumed", None),
        "priority": ("batch.updated", {"changes_requested": {"priority": 7}}),
        "cancel": ("batch.cancelled", None),
    }
    async with site.admin() as client:
        for act in acts:
            assert await press(client, batch.id, act, priority=7) == 303
        page = (await client.get("/admin/audit?action=batch.paused")).text
    found = await entries(site)
    assert [(one.action, one.detail) for one in found] == list(acts.values())
    for one in found:
        assert (one.source, one.actor_key_id) == ("dashboard", site.key_id)
        assert (one.target_id, one.project_id) == (batch.id, batch.project_id)
    assert batch.id in page
    assert f'href="/admin/batches/{batch.id}"' in page, "leads to the batch"


async def test_failed_rows_run_again_name_the_new_batch(site: Site) -> None:
    batch = await of_another_project(site, line("good"), line("bad", "fake:status=400"))
    await run_to_its_end(site, batch.id)
    async with site.admin() as client:
        assert await press(client, batch.id, "retry") == 303
    (noted,) = await entries(site)
    assert (noted.action, noted.target_id) == ("batch.retried", batch.id)
    assert noted.detail is not None
    made = await read_batch(site.bench.database, noted.detail["data"]["new_batch_id"])
    assert made.retry_of == batch.id


async def test_a_submission_and_a_download(site: Site) -> None:
    async with site.admin() as client:
        token = token_in((await client.get("/admin/batches/new")).text)
        reply = await client.post(
            "/admin/batches",
            data={"csrf_token": token, "purpose": "batch", "endpoint": ENDPOINT},
            files={"file": ("questions.jsonl", line("a") + b"\n")},
        )
        assert reply.status_code == 303
        batch_id = reply.headers["location"].removeprefix("/admin/batches/")
        path = f"/admin/batches/{batch_id}/files"
        assert (await client.get(f"{path}/input")).status_code == 200
        assert (await client.get(f"{path}/output")).status_code == 404
    made, taken = await entries(site)
    batch = await read_batch(site.bench.database, batch_id)
    assert (made.action, made.target_id) == ("batch.created", batch_id)
    data = {"input_file_id": batch.input_file_id, "filename": "questions.jsonl"}
    assert made.detail == {"data": data}
    assert (taken.action, taken.target_id) == ("batch.file_downloaded", batch_id)
    assert taken.detail == {"data": {"file_id": batch.input_file_id, "file": "input"}}


@pytest.mark.parametrize("act", ["cancel", "pause", "resume", "priority", "retry"])
async def test_what_did_not_happen_is_not_noted(site: Site, act: str) -> None:
    batch = await of_another_project(site, line("a"))
    await run_to_its_end(site, batch.id)
    async with site.admin() as client:
        await press(client, batch.id, act, priority=7)
        await press(client, "batch_unknown", act, priority=7)
    assert await entries(site) == []


@pytest.mark.parametrize("own_limit", [False, True])
async def test_an_operator_is_bound_by_the_quota_of_the_batch_s_project(
    site: Site, *, own_limit: bool
) -> None:
    batch = await of_another_project(site, line("bad", "fake:status=400"))
    await run_to_its_end(site, batch.id)
    if own_limit:
        async with site.bench.database.unit_of_work() as session:
            limited = update(Project).where(Project.id == batch.project_id)
            await session.execute(limited.values(batch_enqueued_token_limit=0))
    else:
        site.app.state.settings = GatewaySettings(batch_enqueued_tokens=0)
    async with site.admin() as client:
        assert await press(client, batch.id, "retry") == 429
    assert await entries(site) == []


async def test_logins_are_shown_on_request(site: Site) -> None:
    batch = await of_another_project(site, line("a"))
    async with site.admin() as client:
        await press(client, batch.id, "pause")
        usual = (await client.get("/admin/audit")).text
        assert "batch.paused" in usual
        assert "login.succeeded" not in usual
        assert "login.succeeded" in (await client.get("/admin/audit?logins=1")).text
        assert "login.succeeded" in (await client.get("/admin/audit?action=login.succeeded")).text
