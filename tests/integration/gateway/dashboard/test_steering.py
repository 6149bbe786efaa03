"""What an admin does with a batch that is there, as a browser without scripts does it."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.queue import DISPATCH, STAGES
from batch.steer import resume
from store.models import Batch
from store.repositories import event
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import (
    add_batch,
    add_project,
    events_of,
    line,
    read_batch,
    row_statuses,
)
from tests.fixtures.dashboard import Site, token_in

ACTIONS = ("cancel", "pause", "resume", "priority", "retry")


async def ended(site: Site, batch_id: str) -> None:
    """Run a batch to its end."""
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    assert await finalize(site.bench.database, site.bench.file_store, batch_id)
    site.bench.queue.take()


async def running(site: Site, *lines: bytes, project_id: str = "proj_default") -> str:
    """A batch that has been validated."""
    chosen = lines or (line("a"),)
    return await add_batch(
        site.bench.database, site.bench.file_store, chosen, project_id=project_id
    )


async def do(
    client: httpx.AsyncClient, batch_id: str, action: str, **fields: object
) -> httpx.Response:
    """Press a button of the batch's page."""
    path = f"/admin/batches/{batch_id}"
    token = token_in((await client.get(path)).text)
    return await client.post(f"{path}/{action}", data={"csrf_token": token, **fields})


async def read(site: Site, batch_id: str) -> Batch:
    return await read_batch(site.bench.database, batch_id)


@pytest.mark.parametrize("action", ACTIONS)
async def test_nothing_happens_without_the_token_or_a_login(site: Site, action: str) -> None:
    batch_id = await running(site)
    before = await events_of(site.bench.database, batch_id)
    path = f"/admin/batches/{batch_id}/{action}"
    fields = {"priority": "5"}
    async with site.admin() as client:
        assert (await client.post(path, data=fields)).status_code == 403
        token = token_in((await client.get("/admin/batches")).text)
        good = {**fields, "csrf_token": token}
        foreign = {"origin": "https://elsewhere.example"}
        assert (await client.post(path, data=good, headers=foreign)).status_code == 403
    async with site.client() as stranger:
        reply = await stranger.post(path, data=good)
        assert reply.status_code in (303, 403)
        assert reply.headers.get("location", "/admin/login").startswith("/admin/login")
    assert await events_of(site.bench.database, batch_id) == before
    assert (await read(site, batch_id)).priority == 0
    assert site.bench.queue.take() == []


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_unknown_batch_is_said_to_be_unknown(site: Site, action: str) -> None:
    async with site.admin() as client:
        token = token_in((await client.get("/admin/batches")).text)
        fields = {"csrf_token": token, "priority": "5"}
        reply = await client.post(f"/admin/batches/batch_unknown/{action}", data=fields)
    assert reply.status_code == 404
    assert "No batch found" in reply.text


async def test_cancelling_happens_at_once(site: Site) -> None:
    batch_id = await running(site)
    async with site.admin() as client:
        reply = await do(client, batch_id, "cancel")
        assert (reply.status_code, reply.headers["location"]) == (303, f"/admin/batches/{batch_id}")
        assert (await read(site, batch_id)).status == "cancelling"
        assert site.bench.queue.take() == [STAGES]
        page = (await client.get(f"/admin/batches/{batch_id}")).text
    for button in ("cancel", "pause", "resume", "priority"):
        assert f'id="{button}-button"' not in page


async def test_what_has_ended_is_only_shown(site: Site) -> None:
    batch_id = await running(site)
    await ended(site, batch_id)
    async with site.admin() as client:
        for action in ("cancel", "pause", "resume", "priority"):
            reply = await do(client, batch_id, action, priority=5)
            assert reply.status_code == 303
        page = (await client.get(f"/admin/batches/{batch_id}")).text
        refused = await do(client, batch_id, "retry")
    assert (await read(site, batch_id)).status == "completed"
    assert 'id="retry-button"' not in page, "every row was answered"
    assert refused.status_code == 409
    assert "nothing to retry" in refused.text
    assert site.bench.queue.take() == []


async def test_a_batch_of_any_project_is_paused_and_resumed(site: Site) -> None:
    project = await add_project(site.bench.database, "proj_other")
    batch_id = await running(site, line("a"), line("b"), project_id=project)
    path = f"/admin/batches/{batch_id}"
    async with site.admin() as client:
        page = (await client.get(path)).text
        assert 'id="pause-button"' in page
        assert 'id="resume-button"' not in page
        assert (await do(client, batch_id, "pause")).status_code == 303
        page = (await client.get(path)).text
        assert 'id="pause-button"' not in page
        assert 'id="resume-button"' in page
        assert ">paused</span>" in page
        assert "No row is started while it is paused" in page
        assert (await read(site, batch_id)).paused_at is not None
        assert site.bench.queue.take() == []
        await do(client, batch_id, "resume")
        assert (await read(site, batch_id)).paused_at is None
        # A pause holds the batch's end too, so going on looks whether all rows are done.
        sent = site.bench.queue.take()
        assert sent == [DISPATCH, STAGES], "after the commit"
    events = await events_of(site.bench.database, batch_id)
    assert events[-2:] == ["paused", "resumed"]


async def test_the_priority_is_changed_within_its_bounds(site: Site) -> None:
    batch_id = await running(site)
    async with site.admin() as client:
        assert (await do(client, batch_id, "priority", priority=7)).status_code == 303
        page = (await client.get(f"/admin/batches/{batch_id}")).text
        assert '<dd id="priority">7' in page
        assert 'min="-100" max="100"' in page
        for wrong in (101, -101, "high", ""):
            reply = await do(client, batch_id, "priority", priority=wrong)
            assert reply.status_code == 400, wrong
    assert (await read(site, batch_id)).priority == 7


async def test_failed_rows_run_again_as_a_batch_of_their_owner(site: Site) -> None:
    project = await add_project(site.bench.database, "proj_other")
    source = await running(site, line("good"), line("bad", "fake:status=400"), project_id=project)
    await ended(site, source)
    async with site.admin() as client:
        page = (await client.get(f"/admin/batches/{source}")).text
        assert 'id="retry-button"' in page
        reply = await do(client, source, "retry")
        assert reply.status_code == 303
        retry_id = reply.headers["location"].removeprefix("/admin/batches/")
        assert site.bench.queue.take() == [DISPATCH]
        again = await do(client, source, "retry")
        assert again.headers["location"] == reply.headers["location"], "there is one retry"
        page = (await client.get(f"/admin/batches/{source}")).text
        assert 'id="retry-button"' not in page
        assert f'href="{retry_id}" id="retry-link"' in page
        assert source in (await client.get(f"/admin/batches/{retry_id}")).text
    retry = await read(site, retry_id)
    assert (retry.project_id, retry.retry_of, retry.status) == (project, source, "in_progress")
    assert await row_statuses(site.bench.database, retry_id) == {"bad": "pending"}


async def test_a_page_says_what_the_api_says(site: Site) -> None:
    """Pace, prediction and reason are those of the `coserve` object."""
    batch_id = await running(site, *(line(f"r{number}") for number in range(40)))
    path = f"/admin/batches/{batch_id}"
    async with site.admin() as client:
        page = (await client.get(path)).text
        assert "about to start" in page
        assert 'id="predicted-end" class="">–</dd>' in page
        await _answer_some(site, batch_id)
        page = (await client.get(path)).text
        assert "rows/" in page
        assert "tok/s" in page
        assert 'id="predicted-end" class=""><time' in page
        assert 'id="late-warning"' not in page
        await _shorten_window(site, batch_id)
        page = (await client.get(path)).text
        assert "after its completion window" in page
        async with site.bench.database.unit_of_work() as session:
            await cancel(session, "proj_default", batch_id)
        assert "stopping its rows" in (await client.get(path)).text


async def _answer_some(site: Site, batch_id: str) -> None:
    async with site.bench.database.unit_of_work() as session:
        await session.execute(
            text(
                """
                INSERT INTO row_results (batch_id, seq, row_id, succeeded, line, prompt_tokens,
                                         completion_tokens, created_at)
                SELECT batch_id, line_no, id, true, '{}'::bytea, 10, 5,
                       now() - make_interval(secs => 21 - line_no)
                FROM batch_rows WHERE batch_id = :id AND line_no <= 20
                """
            ),
            {"id": batch_id},
        )
        await session.execute(
            text(
                "UPDATE batch_rows SET status = 'succeeded' WHERE batch_id = :id AND line_no <= 20"
            ),
            {"id": batch_id},
        )
        await session.execute(
            text("UPDATE batches SET num_completed = 20, num_results = 20 WHERE id = :id"),
            {"id": batch_id},
        )


async def _shorten_window(site: Site, batch_id: str) -> None:
    async with site.bench.database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batches SET expires_at = now() + interval '5 seconds' WHERE id = :id"),
            {"id": batch_id},
        )


async def test_the_timeline_says_who_did_it_and_what_the_service_did(site: Site) -> None:
    batch_id = await running(site)
    async with site.admin() as client:
        await do(client, batch_id, "pause")
        page = (await client.get(f"/admin/batches/{batch_id}")).text
    async with site.bench.database.unit_of_work(actor="nightly (api)") as work:
        await resume(work, "proj_default", batch_id)
    async with site.bench.database.snapshot() as work:
        said = {one.event: one.actor for one in await event.of_batch(work, batch_id)}
    assert said["paused"] == "admin (dashboard)"
    assert said["resumed"] == "nightly (api)"
    assert said["in_progress"] is None
    assert "by admin (dashboard)" in page
    assert "by coserve" in page
