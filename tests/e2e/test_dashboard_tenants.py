"""Projects, keys, the audit log and webhooks as an operator works with them, in real Chromium."""

from __future__ import annotations

import re

import httpx
import pytest
from openai import AsyncOpenAI
from playwright.async_api import expect

from tests.fixtures.batches import line
from tests.fixtures.installation import Installation
from tests.fixtures.receiver import receiving
from tests.fixtures.visit import Visit, to_page

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

PHONE = {"width": 390, "height": 844}


async def status_with(site: Installation, key: str) -> int:
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as client:
        return (await client.get(f"{site.url}/v1/models")).status_code


async def test_a_key_is_made_rotated_and_revoked_and_the_log_knows(
    installation: Installation, visit: Visit
) -> None:
    page = visit.page
    await visit.log_in(installation)
    await to_page(page, "Projects")
    await page.get_by_label("New project").fill("Search")
    await page.get_by_role("button", name="Create project").click()
    await expect(page.get_by_role("heading", name="Search", exact=True)).to_be_visible()
    await expect(page.get_by_text("This project has no usable key")).to_be_visible()

    form = page.locator("#new-key-form")
    await form.get_by_label("Name").fill("nightly")
    await form.get_by_role("checkbox", name=re.compile("webhooks")).uncheck()
    await form.get_by_role("button", name="Create key").click()
    first = await page.locator("#new-key").inner_text()
    assert await status_with(installation, first) == 200
    row = page.get_by_role("row", name=re.compile("nightly"))
    await expect(row).to_contain_text("chat, files, batches")

    await row.get_by_role("button", name="Rotate nightly").click()
    await page.get_by_label("Hours that the old key goes on").fill("0")
    await page.get_by_role("button", name="Make the new key").click()
    # The first text leaves the page before the second is read.
    await expect(page.locator("#new-key")).not_to_have_text(first)
    second = await page.locator("#new-key").inner_text()
    assert await status_with(installation, second) == 200

    await row.get_by_role("button", name="Revoke nightly").click()
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(row).to_be_visible()
    await row.get_by_role("button", name="Revoke nightly").click()
    await page.get_by_role("button", name="Revoke the key").click()
    await expect(page.get_by_text("This project has no usable key")).to_be_visible()
    await expect(page.get_by_text("2 keys that ended")).to_be_visible()
    assert first not in await page.content()

    await to_page(page, "Audit log")
    log = page.locator("#audit")
    for action in ("project.created", "api_key.created", "api_key.rotated", "api_key.deleted"):
        await expect(log.get_by_role("link", name=action)).to_be_visible()
    await log.get_by_role("link", name="api_key.rotated").click()
    await expect(log.get_by_role("row")).to_have_count(2)  # the heads of the columns, and one


async def test_a_viewer_sees_and_changes_nothing(installation: Installation, visit: Visit) -> None:
    page = visit.page
    await visit.log_in(installation)
    await to_page(page, "Projects")
    await page.get_by_role("link", name="Default").click()
    form = page.locator("#new-key-form")
    await form.get_by_label("Name").fill("auditor")
    await form.get_by_label("Dashboard and administration").select_option("viewer")
    await form.get_by_role("button", name="Create key").click()
    viewer_key = await page.locator("#new-key").inner_text()
    await page.get_by_role("button", name="Log out").click()

    await visit.log_in(installation, viewer_key)
    await expect(page.get_by_role("link", name="New batch")).to_have_count(0)
    await expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
    await to_page(page, "Projects")
    await expect(page.get_by_role("button", name="Create project")).to_have_count(0)
    await page.get_by_role("link", name="Default").click()
    await expect(page.get_by_role("row", name=re.compile("auditor"))).to_contain_text("yours")
    for act in ("Create key", "Save", "Revoke auditor", "Rotate auditor"):
        await expect(page.get_by_role("button", name=act)).to_have_count(0)


async def test_webhooks_move_by_themselves(installation: Installation, visit: Visit) -> None:
    page = visit.page
    await visit.log_in(installation)
    await to_page(page, "Webhooks")
    await expect(page.get_by_role("heading", name="No endpoint is registered")).to_be_visible()
    async with (
        receiving() as good,
        receiving(status=503) as bad,
        AsyncOpenAI(base_url=f"{installation.url}/v1", api_key=installation.admin_key) as client,
    ):
        for name, receiver in (("nightly", good), ("broken", bad)):
            await client.webhooks.create(
                name=name, url=receiver.url, event_types=["batch.completed"]
            )
        endpoints = page.locator("#webhook-endpoints")
        await expect(endpoints.get_by_role("row", name=re.compile("nightly"))).to_contain_text("ok")
        await expect(page.get_by_role("heading", name="No endpoint is registered")).to_be_hidden()
        file = await client.files.create(file=("in.jsonl", line("a")), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        sent = page.locator("#webhook-deliveries").get_by_role("row")
        heard = sent.filter(has_text="nightly")
        await expect(heard).to_contain_text("delivered", timeout=180_000)
        await expect(sent.filter(has_text="broken")).to_contain_text("503", timeout=60_000)
        await expect(endpoints.get_by_role("row").nth(1)).to_contain_text("failing")
        await heard.get_by_role("link", name=batch.id).click()
        await expect(page.get_by_role("heading", name="in.jsonl")).to_be_visible()


async def test_no_page_is_wider_than_a_phone(installation: Installation, visit: Visit) -> None:
    page = visit.page
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await visit.log_in(installation)
    async with AsyncOpenAI(
        base_url=f"{installation.url}/v1", api_key=installation.admin_key
    ) as client:
        await client.webhooks.create(
            name="w" * 60, url="http://127.0.0.1:9/" + "p" * 90, event_types=["batch.completed"]
        )
        name = "n" * 90 + ".jsonl"
        file = await client.files.create(file=(name, line("a")), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            extra_body={"coserve": {"paused": True}},
        )
    places = (
        "batches", "batches/new", f"batches/{batch.id}", "engines", "projects",
        "projects/proj_default", "usage", "audit", "webhooks",
    )  # fmt: skip
    for place in places:
        await page.goto(f"{installation.url}/admin/{place}")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], place
