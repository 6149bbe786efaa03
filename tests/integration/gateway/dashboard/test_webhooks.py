"""The page of webhooks: whose endpoints they are, how they get on, what was sent."""

from __future__ import annotations

import pytest

from batch.webhooks import signature
from tests.fixtures.batches import add_project
from tests.fixtures.dashboard import Site
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
