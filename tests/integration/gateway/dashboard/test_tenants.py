"""Projects, keys, audit log and usage in the dashboard, and what each role may do there."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.auth.roles import ROLES
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.repositories import organization as organizations
from store.repositories import project as projects
from store.repositories import usage as usages
from store.repositories.usage import UsageCount, UsageKey
from tests.fixtures.batches import add_batch, line
from tests.fixtures.dashboard import Site, log_in, token_in

PROJECT = f"/admin/projects/{DEFAULT_PROJECT_ID}"


@asynccontextmanager
async def logged_in(
    site: Site, role: str, project_id: str = DEFAULT_PROJECT_ID
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of someone with this role."""
    async with site.bench.database.unit_of_work() as session:
        _, text = await keys.create(session, project_id, role, (), role=role)
    async with site.client() as client:
        assert (await log_in(client, text)).status_code == 303
        yield client


async def send(client: httpx.AsyncClient, path: str, **fields: object) -> httpx.Response:
    """A form of a page, with its token."""
    token = token_in((await client.get("/admin/projects")).text)
    return await client.post(path, data={"csrf_token": token, **fields})


def shown_key(html: str) -> str:
    found = re.search(r'<pre id="new-key".*?><code>(.*?)</code>', html)
    assert found, html
    return found[1]


async def key_by_text(site: Site, text: str) -> str | None:
    async with site.bench.database.unit_of_work() as session:
        found = await keys.find_by_plaintext(session, text)
    return None if found is None else found.id


async def test_a_project_is_made_limited_and_archived(site: Site) -> None:
    async with site.admin() as client:
        reply = await send(client, "/admin/projects", name="Search")
        assert reply.status_code == 303
        path = reply.headers["location"]
        done = await send(
            client,
            path,
            name="Find",
            requests_per_minute="",
            tokens_per_minute="9,000",
            live_batches="7",
            stored_bytes="0",
        )
        assert done.status_code == 303
        page = (await client.get(path)).text
        assert "<h1>Find" in page
        assert 'value="9,000"' in page
        wrong = await send(client, path, name="Find", tokens_per_minute="many")
        assert wrong.status_code == 400
        assert "Tokens a minute: a whole number, or nothing." in wrong.text
        assert (await send(client, f"{path}/archive")).status_code == 303
        assert "archived" in (await client.get(path)).text
        assert "New key" not in (await client.get(path)).text
        refused = await send(client, f"{PROJECT}/archive")
        assert refused.status_code == 409
        assert "default project" in refused.text


async def test_a_key_is_shown_once_rotated_and_revoked(site: Site) -> None:
    async with site.admin() as client:
        made = await send(client, f"{PROJECT}/keys", name="ci", scopes=["chat", "read"])
        assert made.status_code == 200
        assert made.headers["cache-control"] == "no-store"
        first = shown_key(made.text)
        first_id = await key_by_text(site, first)
        again = (await client.get(PROJECT)).text
        assert first not in again
        assert "chat, read" in again
        rotated = await send(client, f"{PROJECT}/keys/{first_id}/rotate", grace_hours="0")
        second = shown_key(rotated.text)
        assert await key_by_text(site, first) is None
        second_id = await key_by_text(site, second)
        assert second_id is not None
        revoked = await send(client, f"{PROJECT}/keys/{second_id}/revoke")
        assert revoked.status_code == 303
        assert await key_by_text(site, second) is None
        assert "2 keys that ended" in (await client.get(PROJECT)).text
        gone = await send(client, f"{PROJECT}/keys/{second_id}/revoke")
        assert gone.status_code == 404
        log = (await client.get("/admin/audit?logins=1")).text
        for action in ("login.succeeded", "api_key.created", "api_key.rotated", "api_key.deleted"):
            assert action in log
        assert first not in log
        only = (await client.get("/admin/audit?action=api_key.rotated")).text
        assert "api_key.created" not in only


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "", "scopes": ["chat"]}, "1 to 100 printable"),
        ({"name": "x", "scopes": ["root"]}, "no such scope"),
        ({"name": "x", "scopes": ["chat"], "role": "root"}, "no such role"),
        ({"name": "x"}, "a scope or a role"),
        ({"name": "x", "scopes": ["chat"], "expires_in_days": "soon"}, "a whole number"),
        ({"name": "<b>x</b>" * 20, "scopes": ["chat"]}, "printable"),
    ],
)
async def test_what_is_wrong_is_said_on_the_page(
    site: Site, fields: dict[str, object], said: str
) -> None:
    async with site.admin() as client:
        reply = await send(client, f"{PROJECT}/keys", **fields)
    assert reply.status_code == 400
    assert said in reply.text


async def test_forms_without_their_token_are_refused(site: Site) -> None:
    async with site.admin() as client:
        for path in (
            "/admin/projects",
            PROJECT,
            f"{PROJECT}/archive",
            f"{PROJECT}/keys",
            f"{PROJECT}/keys/key_1/revoke",
            f"{PROJECT}/keys/key_1/rotate",
        ):
            for fields in ({"name": "x"}, {"name": "x", "csrf_token": "wrong"}):
                reply = await client.post(path, data=fields)
                assert reply.status_code == 403, path
                assert "out of date" in reply.text
    async with site.bench.database.unit_of_work() as session:
        assert len(await projects.page(session, "org_default")) == 1


# What every role below `admin` is refused, and with it what `viewer` is.
MANAGING = [
    ("POST", "/admin/projects"),
    ("POST", PROJECT),
    ("POST", f"{PROJECT}/archive"),
    ("POST", f"{PROJECT}/keys"),
    ("POST", f"{PROJECT}/keys/key_1/revoke"),
    ("POST", f"{PROJECT}/keys/key_1/rotate"),
    ("GET", "/admin/audit"),
]
SEEN = ["/admin/batches", "/admin/engines", "/admin/projects", PROJECT, "/admin/usage"]


@pytest.mark.parametrize("role", ROLES)
async def test_what_each_role_may_do(site: Site, role: str) -> None:
    bench = site.bench
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    async with logged_in(site, role) as client:
        for path in SEEN:
            assert (await client.get(path)).status_code == 200, path
        for method, path in MANAGING:
            if method == "GET":
                reply = await client.get(path)
            else:
                reply = await send(client, path, name="x")
            assert (reply.status_code == 403) == (role != "admin"), (path, reply.status_code)
        download = await client.get(f"/admin/batches/{batch_id}/files/input")
        assert download.status_code == (403 if role == "viewer" else 200)
        page = (await client.get(PROJECT)).text
        assert ("Create key" in page) == (role == "admin")
        assert ("Audit log" in page) == (role == "admin")
        cancelled = await send(client, f"/admin/batches/{batch_id}/cancel")
        assert cancelled.status_code == (403 if role == "viewer" else 303)


async def test_another_organisation_is_not_there(site: Site) -> None:
    bench = site.bench
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    async with bench.database.unit_of_work() as session:
        elsewhere = await organizations.create(session, "elsewhere")
        theirs = await projects.create(session, "theirs", elsewhere.id)
    async with logged_in(site, "admin", theirs.id) as client:
        for path in ("/admin/projects", "/admin/usage", "/admin/audit", "/admin/batches"):
            page = (await client.get(path)).text
            assert DEFAULT_PROJECT_ID not in page, path
            assert batch_id not in page, path
        for path in (PROJECT, f"/admin/batches/{batch_id}"):
            assert (await client.get(path)).status_code == 404, path
        for path in (
            f"/admin/batches/{batch_id}/files/input",
            f"/admin/events?view=batch&batch_id={batch_id}",
        ):
            assert (await client.get(path)).status_code == 404, path
        for act in ("cancel", "pause", "resume", "retry"):
            reply = await send(client, f"/admin/batches/{batch_id}/{act}")
            assert reply.status_code == 404, act
        for path in (
            f"{PROJECT}/archive",
            f"{PROJECT}/keys",
            f"{PROJECT}/keys/{site.key_id}/revoke",
        ):
            assert (await send(client, path, name="x", scopes=["chat"])).status_code == 404, path
    assert await key_by_text(site, site.key) == site.key_id


async def test_usage_by_key_and_class(site: Site) -> None:
    async with site.bench.database.unit_of_work() as session:
        for word, tokens in (("online", 12_345), ("offline", 678)):
            used = UsageKey(DEFAULT_PROJECT_ID, site.key_id, "org/model", word)
            await usages.add(session, {used: UsageCount(2, tokens, 11, 7)})
    async with site.admin() as client:
        page = (await client.get("/admin/usage")).text
        assert "12,345" in page
        assert page.index("12,345") < page.index(">678<")
        assert "org/model" in page
        assert (await client.get("/admin/usage?days=30")).status_code == 200
        assert (await client.get("/admin/usage?days=99")).status_code == 200


async def test_usage_as_csv_is_what_the_page_adds_up(site: Site) -> None:
    async with site.bench.database.unit_of_work() as session:
        mine = UsageKey(DEFAULT_PROJECT_ID, "key_1", "org/model", "offline")
        await usages.add(session, {mine: UsageCount(2, 100, 11, 7)})
    async with logged_in(site, "viewer") as client:
        page = (await client.get("/admin/usage?days=30")).text
        reply = await client.get("/admin/usage.csv?days=30")
    assert "100.0 %" in page
    assert "/admin/usage.csv?days=30" in page
    assert reply.headers["content-type"].startswith("text/csv")
    (line,) = csv.DictReader(io.StringIO(reply.text, newline=""))
    used = {"requests": "2", "input_tokens": "100", "cached_tokens": "11", "output_tokens": "7"}
    assert {**line, **used} == line
    assert line["project_id"] == DEFAULT_PROJECT_ID
    assert line["class"] == "offline"


async def test_a_name_is_no_formula_in_a_spreadsheet(site: Site) -> None:
    async with site.bench.database.unit_of_work() as session:
        bad = await projects.create(session, "=1+1")
        await usages.add(session, {UsageKey(bad.id, "k", "m", "online"): UsageCount(1, 1, 0, 1)})
    async with logged_in(site, "viewer") as client:
        reply = await client.get("/admin/usage.csv")
    (line,) = csv.DictReader(io.StringIO(reply.text, newline=""))
    assert line["project"] == "'=1+1"


async def test_a_reload_makes_no_second_key(site: Site) -> None:
    async with site.admin() as client:
        html = (await client.get("/admin/projects/proj_default")).text
        once = re.search(r'name="once" value="([^"]+)"', html)
        assert once is not None
        fields = {
            "csrf_token": token_in(html),
            "once": once[1],
            "name": "only one",
            "scopes": ["chat"],
        }
        path = "/admin/projects/proj_default/keys"
        assert "The new key" in (await client.post(path, data=fields)).text
        for _ in range(2):
            again = await client.post(path, data=fields)
            assert (again.status_code, again.headers["location"]) == (
                303,
                "/admin/projects/proj_default",
            )
        shown = (await client.get("/admin/projects/proj_default")).text
    assert len(re.findall(r'<tr id="row-[^"]+">\s*<td class="name">only one', shown)) == 1
