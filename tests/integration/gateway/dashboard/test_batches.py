"""The list, one batch's page, submitting, downloading."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from pathlib import Path

import httpx
import orjson
import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from batch.queue import STAGES
from coserve.cli import app
from store.models import Batch
from store.session import Database
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import MODEL, add_batch, add_project, add_validating, line, read_batch
from tests.fixtures.dashboard import Site, token_in
from tests.fixtures.webhooks import add_endpoint

pytestmark = pytest.mark.usefixtures("site")


async def ended(site: Site, batch_id: str) -> None:
    """Run a batch to its end."""
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    assert await finalize(site.bench.database, site.bench.file_store, batch_id)


async def upload(
    client: httpx.AsyncClient, data: bytes, *, token: str | None = None, **kwargs: object
) -> httpx.Response:
    """Send the form of the page as a browser without scripts does."""
    if token is None:
        token = token_in((await client.get("/admin/batches/new")).text)
    fields = {"csrf_token": token, "purpose": "batch", "endpoint": "/v1/chat/completions"}
    files = {"file": ("mine.jsonl", data, "application/jsonl")}
    return await client.post("/admin/batches", data=fields, files=files, **kwargs)  # type: ignore[arg-type]


async def test_without_batches_the_page_says_how_to_make_one(site: Site) -> None:
    async with site.admin() as client:
        page = (await client.get("/admin/batches")).text
    assert "No batches yet" in page
    assert f"{site.url}/v1/files" in page
    assert "client.batches.create" in page


async def test_the_list_shows_batches_of_every_owner(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    mine = await add_batch(database, store, [line("a"), line("b")])
    theirs = await add_validating(
        database, store, [line("a")], project_id=await add_project(database, "proj_other")
    )
    async with site.admin() as client:
        page = (await client.get("/admin/batches")).text
    assert page.index(theirs) < page.index(mine)
    assert "proj_other" in page
    assert "0 of 2" in page
    assert "How-to" not in page
    assert "No batches yet" not in page


async def test_the_list_is_filtered_and_paged(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    ids = [await add_validating(database, store, [line("a")]) for _ in range(27)]
    async with site.admin() as client:
        first = (await client.get("/admin/batches?group=live")).text
        assert first.count('<tr id="row-') == 25
        assert ids[-1] in first
        assert ids[0] not in first
        older = (await client.get(f"/admin/batches?group=live&after={ids[2]}")).text
        assert older.count('<tr id="row-') == 2
        assert ids[0] in older
        assert (
            "No batches match these filters" in (await client.get("/admin/batches?group=done")).text
        )


async def test_the_line_shown_is_one_that_is_accepted(site: Site) -> None:
    async with site.admin() as client:
        page = (await client.get("/admin/batches/new")).text
        found = re.search(r'<pre id="line-example"[^>]*><code>(.*?)</code>', page, re.DOTALL)
        assert found
        shown = unescape(found[1])
        assert "\n" not in shown
        location = (await upload(client, shown.encode())).headers["location"]
    batch_id = location.rpartition("/")[2]
    await validate(site.bench.database, site.bench.file_store, batch_id)
    batch = await read_batch(site.bench.database, batch_id)
    assert (batch.status, batch.model) == ("in_progress", MODEL)


async def test_the_usage_page_says_what_counts(site: Site) -> None:
    async with site.admin() as client:
        assert "cancelled ones too" in (await client.get("/admin/usage")).text


async def test_an_uploaded_file_becomes_a_batch(site: Site) -> None:
    async with site.admin() as client:
        reply = await upload(client, line("a") + b"\n")
        assert reply.status_code == 303
        batch_id = reply.headers["location"].rpartition("/")[2]
        assert site.bench.queue.take() == [STAGES]
        page = (await client.get(reply.headers["location"])).text
    assert "mine.jsonl" in page
    batch = await read_batch(site.bench.database, batch_id)
    assert (batch.status, batch.key_id) == ("validating", site.key_id)


async def test_a_form_says_window_priority_metadata_and_pause(site: Site) -> None:
    async with site.admin() as client:
        page = (await client.get("/admin/batches/new")).text
        said = {
            "csrf_token": token_in(page),
            "purpose": "batch",
            "endpoint": "/v1/chat/completions",
            "completion_window": "3d",
            "priority": "-5",
            "metadata": "team = blue\n\nrun=a=b",
            "paused": "1",
        }
        files = {"file": ("mine.jsonl", line("a"))}
        made = await client.post("/admin/batches", data=said, files=files)
        for field, value, words in (
            ("metadata", "nothing", "is no KEY=VALUE"),
            ("priority", "high", "must be a whole number"),
            ("priority", "101", "must lie between"),
            ("completion_window", "1y", "completion window"),
        ):
            refused = await client.post("/admin/batches", data={**said, field: value}, files=files)
            assert (refused.status_code, words in refused.text) == (400, True), field
    batch = await read_batch(site.bench.database, made.headers["location"].rpartition("/")[2])
    assert (batch.completion_window, batch.priority) == ("3d", -5)
    assert batch.batch_metadata == {"team": "blue", "run": "a=b"}
    assert batch.paused_at is not None
    assert "No webhook will be notified" in page


async def test_a_form_says_who_hears_of_the_end(site: Site) -> None:
    endpoint = await add_endpoint(site.bench.database, "http://127.0.0.1:1/")
    wanted = {"": None, "nobody": [], endpoint.id: [endpoint.id]}
    async with site.admin() as client:
        page = (await client.get("/admin/batches/new")).text
        assert f'<option value="{endpoint.id}">Only test</option>' in page
        said = {
            "csrf_token": token_in(page),
            "purpose": "batch",
            "endpoint": "/v1/chat/completions",
        }
        files = {"file": ("mine.jsonl", line("a"))}
        for choice, endpoints in wanted.items():
            made = await client.post(
                "/admin/batches", data={**said, "webhook": choice}, files=files
            )
            batch_id = made.headers["location"].rpartition("/")[2]
            assert (await read_batch(site.bench.database, batch_id)).webhook_endpoints == endpoints
            shown = (await client.get(made.headers["location"])).text
            assert ("none is notified" in shown) == (choice == "nobody")
        refused = await client.post(
            "/admin/batches", data={**said, "webhook": "we_unknown"}, files=files
        )
    assert (refused.status_code, "No webhook endpoint found" in refused.text) == (400, True)


async def test_a_script_gets_the_address_instead_of_a_redirect(site: Site) -> None:
    async with site.admin() as client:
        reply = await upload(client, line("a"), headers={"hx-request": "true"})
    assert reply.status_code == 204
    assert reply.headers["hx-redirect"].startswith("/admin/batches/batch_")


async def test_an_upload_without_its_token_leaves_nothing(site: Site) -> None:
    async with site.admin() as client:
        reply = await upload(client, line("a"), token="wrong")
        assert reply.status_code == 403
        assert "No batches yet" in (await client.get("/admin/batches")).text
    assert site.bench.queue.take() == []
    assert site.bench.file_store.keys() == []


async def test_an_upload_by_a_visitor_leads_to_the_login(site: Site) -> None:
    async with site.client() as client:
        token = token_in((await client.get("/admin/login")).text)
        reply = await upload(client, line("a"), token=token)
    assert (reply.status_code, reply.headers["location"]) == (303, "/admin/login")
    assert site.bench.file_store.keys() == []


async def test_what_is_wrong_with_an_upload_is_said_on_the_form(site: Site) -> None:
    async with site.admin() as client:
        reply = await upload(client, b"")
        assert reply.status_code == 400
        assert "The file is empty" in reply.text
        token = token_in((await client.get("/admin/batches/new")).text)
        fields = {"csrf_token": token, "purpose": "batch", "endpoint": "/v1/nowhere"}
        reply = await client.post(
            "/admin/batches", data=fields, files={"file": ("a.jsonl", line("a"))}
        )
        assert reply.status_code == 400
        assert "endpoint must be one of" in reply.text
    assert site.bench.file_store.keys() == []


async def test_an_upload_over_the_limit_is_refused_before_it_is_read(site: Site) -> None:
    async with site.admin() as client:
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    host = site.url.removeprefix("http://")
    head = (
        f"POST /admin/batches HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n"
        "content-type: multipart/form-data; boundary=x\r\ncontent-length: 314572800\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(head.encode())
    async with asyncio.timeout(5):
        reply = await reader.readuntil(b"</main>")
    writer.close()
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"larger than the limit" in reply


async def test_a_failed_batch_shows_every_wrong_line(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    lines = [line("a"), b"{nope", line("a")]
    batch_id = await add_validating(database, store, lines)
    await validate(database, store, batch_id)
    async with site.admin() as client:
        page = (await client.get(f"/admin/batches/{batch_id}")).text
    assert "Errors in the input" in page
    assert "not valid JSON" in page
    assert "same as that of line 1" in page
    assert "Validation failed" in page


async def test_a_finished_batch_shows_its_failed_rows_and_files(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    lines = [line("good"), line("<b>bad</b>", "fake:status=400")]
    batch_id = await add_batch(database, store, lines)
    await ended(site, batch_id)
    async with site.admin() as client:
        page = (await client.get(f"/admin/batches/{batch_id}")).text
        assert "&lt;b&gt;bad&lt;/b&gt;" in page
        assert "<b>bad" not in page
        assert "Completed" in page
        for kind, custom_id in (("output", b'"good"'), ("error", b"bad"), ("input", b"fake-model")):
            reply = await client.get(f"/admin/batches/{batch_id}/files/{kind}")
            assert reply.status_code == 200
            assert reply.headers["content-disposition"].startswith("attachment")
            assert int(reply.headers["content-length"]) == len(reply.content)
            assert custom_id in reply.content


async def test_what_is_not_there_is_a_page_that_says_so(site: Site) -> None:
    batch_id = await add_batch(site.bench.database, site.bench.file_store, [line("a")])
    async with site.admin() as client:
        for path in (
            "/admin/batches/batch_nowhere",
            f"/admin/batches/{batch_id}/files/output",
            f"/admin/batches/{batch_id}/files/secrets",
            "/admin/nowhere",
        ):
            reply = await client.get(path)
            assert reply.status_code == 404, path
            assert "That did not work" in reply.text


async def test_a_database_that_is_away_is_a_page_too(site: Site, database: Database) -> None:
    async with site.admin() as client:
        site.app.state.database = Database("postgresql+psycopg://app@127.0.0.1:1/app")
        reply = await client.get("/admin/batches")
        site.app.state.database = database
    assert reply.status_code == 503
    assert "database does not answer" in reply.text


async def test_batches_are_found_by_what_they_are_called(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    first = await add_batch(database, store, [line("needle-7"), line("b")])
    second = await add_batch(database, store, [line("needle-77")], model="other-model")
    async with database.unit_of_work() as session:
        await session.execute(
            update(Batch).where(Batch.id == second).values(batch_metadata={"team": "Harbour"})
        )
    found = {
        first: [first[-12:], "needle-7"],
        second: ["OTHER-model", "harbour", "needle-77"],
    }
    async with site.admin() as client:
        for batch_id, words in found.items():
            for word in words:
                html = (await client.get("/admin/batches", params={"search": word})).text
                assert re.findall(r'id="row-(batch_[^"]+)"', html) == [batch_id], word
        nothing = (await client.get("/admin/batches", params={"search": "100%<b>"})).text
        assert "No batches match “100%&lt;b&gt;”." in nothing
        both = (await client.get("/admin/batches", params={"search": "input.jsonl"})).text
        assert len(re.findall(r'id="row-batch_', both)) == 2
        done = (await client.get("/admin/batches?group=done&search=needle-7")).text
        assert "No batches match" in done


async def test_a_bar_has_a_part_for_each_state_of_rows(site: Site) -> None:
    batch_id = await add_batch(
        site.bench.database, site.bench.file_store, [line(f"r{n}") for n in range(10)]
    )
    async with site.bench.database.unit_of_work() as session:
        await session.execute(
            update(Batch).where(Batch.id == batch_id).values(num_completed=5, num_failed=2)
        )
    async with site.admin() as client:
        html = (await client.get("/admin/batches")).text
    assert 'class="good" x="0.0%" width="50.0%"' in html
    assert 'class="bad" x="50.0%" width="20.0%"' in html
    assert "5 succeeded, 2 failed, 3 waiting" in html


async def test_filters_stay_where_the_page_leads(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    ids = [await add_validating(database, store, [line("a")]) for _ in range(27)]
    async with site.admin() as client:
        page = (await client.get("/admin/batches?group=validating&order=oldest")).text
        assert page.index(ids[0]) < page.index(ids[1])
        assert f"group=validating&amp;order=oldest&amp;after={ids[24]}" in page
        assert '<option value="validating" selected>' in page
        assert 'href="?group=done&amp;order=oldest"' in page
        more = (
            await client.get(f"/admin/batches?group=validating&order=oldest&after={ids[24]}")
        ).text
        assert re.findall(r'<tr id="row-(batch_[^"]+)"', more) == ids[25:]


async def test_the_form_the_command_and_the_batch_find_the_same(site: Site, tmp_path: Path) -> None:
    """One list: of the check in the form, of `coserve batch check` and of the validation."""
    database, store = site.bench.database, site.bench.file_store
    lines: list[bytes] = [line("a"), b"no JSON", line("a"), b'{"custom_id": "x", "method": "GET"}']
    batch_id = await add_validating(database, store, lines)
    async with site.admin() as client:
        token = token_in((await client.get("/admin/batches/new")).text)
        path = "/admin/batches/check?endpoint=/v1/chat/completions"
        body = b"\n".join(one.rstrip(b"\n") for one in lines) + b"\n"
        headers = {"x-csrf-token": token}
        form = await client.post(path, content=body, headers=headers)
        assert (await client.post(path, content=body)).status_code == 403
        other = await client.post("/admin/batches/check?endpoint=/x", content=body, headers=headers)
        assert other.status_code == 400
    assert form.status_code == 200, form.text
    await validate(database, store, batch_id)
    found = (await read_batch(database, batch_id)).errors
    assert found is not None
    assert len(found) >= 5
    path_here = tmp_path / "in.jsonl"
    path_here.write_bytes(body)
    done = CliRunner().invoke(app, ["batch", "check", str(path_here), "--model", MODEL, "--json"])
    assert form.json()["faults"] == found
    assert orjson.loads(done.stdout)["errors"] == found
