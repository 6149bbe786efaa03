"""The page of webhooks: whose endpoints they are, how they get on, what was sent."""

from __future__ import annotations

import re

import httpx
import pytest

from batch.queue import DELIVER
from batch.webhooks import signature
from store.models import WebhookEndpoint
from store.repositories import webhook_delivery as deliveries
from store.repositories import webhook_overview as overview
from tests.fixtures.batches import add_project
from tests.fixtures.dashboard import Site, token_in
from tests.fixtures.receiver import receiving
from tests.fixtures.webhooks import add_endpoint, deliver_now, end_batch

pytestmark = pytest.mark.usefixtures("site")


async def test_without_endpoints_the_page_says_how_to_make_one(site: Site) -> None:
    async with site.admin() as client:
        page = (await client.get("/admin/webhooks")).text
    assert "No endpoint is registered" in page
    assert "client.webhooks.create" in page
    assert f"{site.url}/v1" in page


async def test_endpoints_of_all_projects_and_their_last_deliveries(site: Site) -> None:
    database = site.bench.database
    project = await add_project(database, "proj_other")
    async with receiving() as good, receiving(status=503) as bad:
        mine = await add_endpoint(database, f"{good.url}?token=hidden-word")
        await add_endpoint(database, bad.url, project_id=project, event_types=("batch.cancelled",))
        batches = [await end_batch(database), await end_batch(database, project)]
        await deliver_now(database)
        async with site.admin() as client:
            page = (await client.get("/admin/webhooks")).text
    for batch_id in batches:
        assert f'href="batches/{batch_id}"' in page
    assert good.url in page
    assert "hidden-word" not in page
    assert signature.shown(mine.secret) not in page
    assert "proj_other" in page
    assert page.index(bad.url) < page.index(good.url), "what fails comes first"
    for words in (">failing</span>", ">delivered</span>", ">pending</span>", "again in", ">503<"):
        assert words in page
    assert "No endpoint is registered" not in page


async def test_only_an_admin_sees_it(site: Site) -> None:
    async with site.client() as stranger:
        reply = await stranger.get("/admin/webhooks")
        assert reply.status_code == 303
        assert "/admin/login" in reply.headers["location"]
        assert (await stranger.get("/admin/events?view=webhooks")).status_code == 401


async def test_an_endpoint_is_registered_tried_and_sent_to_again(site: Site) -> None:
    database = site.bench.database
    async with receiving(status=503) as receiver, site.admin() as client:
        token = token_in((await client.get("/admin/webhooks")).text)
        fields = {"csrf_token": token, "name": "nightly", "url": receiver.url}
        made = await client.post(
            "/admin/webhooks", data={**fields, "event_types": ["batch.cancelled"]}
        )
        assert made.status_code == 200, made.text
        async with database.snapshot() as work:
            (known,) = await overview.endpoints(work, "proj_default", limit=10)
        assert signature.shown(known.endpoint.secret) in made.text
        assert (
            signature.shown(known.endpoint.secret) not in (await client.get("/admin/webhooks")).text
        )

        path = f"/admin/webhooks/{known.endpoint.id}/test"
        tried = await client.post(path, data={"csrf_token": token})
        assert "answered a sample of batch.cancelled with 503" in tried.text

        await end_batch(database)
        receiver.status = 200
        await deliver_now(database)
        async with database.snapshot() as work:
            (sent,) = await deliveries.recent(work, [known.endpoint.id], per_endpoint=5)
        path = f"/admin/webhooks/deliveries/{sent.id}/replay"
        assert (await client.post(path, data={"csrf_token": token})).status_code == 303
        assert DELIVER in site.bench.queue.take()
        assert (await client.post(path, data={"csrf_token": token})).status_code == 409
        await deliver_now(database)
        log = (await client.get("/admin/audit")).text
    ids = [one.webhook_id for one in receiver.received[1:]]
    assert ids == [sent.id, sent.id], "the receiver can tell that it has heard of it"
    for act in ("webhook_endpoint.created", "webhook_endpoint.tested", "webhook_delivery.replayed"):
        assert act in log


async def test_what_is_wrong_with_an_endpoint_is_said(site: Site) -> None:
    async with site.admin() as client:
        token = token_in((await client.get("/admin/webhooks")).text)
        fields = {"csrf_token": token, "name": "n", "url": "ftp://nowhere", "event_types": ["x"]}
        refused = await client.post("/admin/webhooks", data=fields)
        unknown = await client.post("/admin/webhooks/we_no/test", data={"csrf_token": token})
        forged = await client.post("/admin/webhooks", data={**fields, "csrf_token": "wrong"})
    assert refused.status_code == 400
    assert 'role="alert"' in refused.text
    assert (unknown.status_code, forged.status_code) == (404, 403)


def once_in(html: str) -> str:
    found = re.search(r'name="once" value="([^"]+)"', html)
    assert found is not None
    return found[1]


async def test_a_reload_registers_no_second_endpoint(site: Site) -> None:
    async with receiving() as receiver, site.admin() as client:
        html = (await client.get("/admin/webhooks")).text
        fields = {
            "csrf_token": token_in(html),
            "once": once_in(html),
            "name": "nightly",
            "url": receiver.url,
            "event_types": ["batch.completed"],
        }
        assert "whsec_" in (await client.post("/admin/webhooks", data=fields)).text
        again = await client.post("/admin/webhooks", data=fields)
        assert (again.status_code, again.headers["location"]) == (303, "/admin/webhooks")
    async with site.bench.database.snapshot() as work:
        assert len(await overview.endpoints(work, "proj_default", limit=10)) == 1


async def test_an_endpoint_is_edited_disabled_rotated_and_deleted(site: Site) -> None:
    database = site.bench.database
    async with receiving() as receiver, site.admin() as client:
        made = await add_endpoint(database, receiver.url)
        html = (await client.get("/admin/webhooks")).text
        token = token_in(html)
        here = f"/admin/webhooks/{made.id}"

        async def now() -> WebhookEndpoint:
            async with database.snapshot() as work:
                (found,) = await overview.endpoints(work, "proj_default", limit=10)
            return found.endpoint

        async def act(path: str, **fields: object) -> httpx.Response:
            return await client.post(here + path, data={"csrf_token": token, **fields})

        edited = await act("", name="renamed", event_types=["batch.failed"])
        assert (edited.status_code, edited.headers["location"]) == (303, "/admin/webhooks")
        assert ((await now()).name, (await now()).event_types) == ("renamed", ["batch.failed"])
        assert (await now()).url == receiver.url, "an empty URL leaves it as it is"
        await act("/disable")
        assert (await now()).disabled_at is not None
        assert ">disabled</span>" in (await client.get("/admin/webhooks")).text
        await act("/enable")
        assert (await now()).disabled_at is None
        rotated = await act("/rotate", keep_old="1", once=once_in(html))
        assert signature.shown((await now()).secret) in rotated.text
        assert (await now()).old_secret == made.secret
        again = await act("/rotate", keep_old="1", once=once_in(html))
        assert (again.status_code, again.headers["location"]) == (303, "/admin/webhooks")
        refused = await act(
            "", name="renamed", url="http://10.0.0.1/", event_types=["batch.failed"]
        )
        assert "COSERVE_WEBHOOK_NETWORKS" in refused.text
        assert (await act("/delete")).status_code == 303
        assert "No endpoint is registered" in (await client.get("/admin/webhooks")).text
        assert (await act("/disable")).status_code == 404
        log = (await client.get("/admin/audit")).text
    for action in ("updated", "secret_rotated", "deleted"):
        assert f"webhook_endpoint.{action}" in log
