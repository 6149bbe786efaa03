"""Pages for operators as they are drawn: on a desk and on a phone, in light and dark, for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from sqlalchemy import text

from store.repositories import engine as engines
from store.session import Database
from tests.e2e.test_dashboard_layout import logged_in, overflows
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import add_batch, line
from tests.fixtures.dashboard import Site, site
from tests.fixtures.drawn import barriers, screenshot
from tests.fixtures.operator_site import operator_site

__all__ = ["site"]

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

PAGES = {
    "overview": ("?window=24h", "#chart-ttft canvas"),
    "scheduler": ("scheduler", "#steps-0 svg >> nth=0"),
    "batches": ("batches", "#batches-list tbody tr >> nth=0"),
    "batch": ("", "#batch-progress svg"),
    "playground": ("playground", "main form"),
    "new-batch": ("batches/new", "#upload-form"),
    "webhooks": ("webhooks", "#new-webhook"),
    "usage": ("usage", "main h1"),
    "projects": ("projects", "main table"),
    "project": ("projects/proj_default", "#use"),
    "audit": ("audit", "main h1"),
    "engines": ("engines", "#engines-list article, #engines-list section >> nth=0"),
    "isolation": ("isolation?window=14d", "#isolation-tbt svg >> nth=0"),
}


NUM_PARTS = 2
"""So many sites and browsers for all pages: making both takes as long as a look at two."""


@pytest.fixture
async def running(database: Database) -> AsyncIterator[Site]:
    async with operator_site(database) as site:
        yield site


async def path_of(site: Site, name: str) -> str:
    """Below /admin; the page of a batch is that of the newest."""
    if name != "batch":
        return PAGES[name][0]
    async with site.bench.database.unit_of_work() as session:
        newest = "SELECT id FROM batches ORDER BY created_at DESC LIMIT 1"
        return f"batches/{await session.scalar(text(newest))}"


async def look_at(page: Page, url: str, name: str) -> None:
    """One page in every width."""
    await page.goto(url)
    for width in (390, 800, 1440):
        assert await overflows(page, width) == [], name
        await expect(page.locator(PAGES[name][1])).to_be_visible()
        if width != 800:  # between the two nothing but the width differs from one of them
            await screenshot(page, f"{name}-{width}")
            assert await barriers(page) == [], name


async def look_in_the_dark(page: Page, url: str, name: str) -> None:
    """The same page where the dark was chosen before it was loaded."""
    await page.goto(url)
    await expect(page.locator(PAGES[name][1])).to_be_visible()
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert await barriers(page) == [], name
    await screenshot(page, f"{name}-dark")


@pytest.mark.parametrize("part", range(NUM_PARTS))
async def test_every_page_fits_and_can_be_used_by_all(
    chromium: Browser, running: Site, part: int
) -> None:
    names = [*PAGES][part::NUM_PARTS]
    urls = {name: f"{running.url}/admin/{await path_of(running, name)}" for name in names}
    async with logged_in(chromium, running, "usage") as page:
        for name, url in urls.items():
            await look_at(page, url, name)
        await page.get_by_role("button", name="Switch between light and dark").click()
        for name, url in urls.items():
            await look_in_the_dark(page, url, name)


async def test_troubles_are_first(chromium: Browser, database: Database) -> None:
    async with (
        operator_site(database, troubled=True) as site,
        logged_in(chromium, site, "") as page,
    ):
        for width in (390, 1600):
            assert await overflows(page, width) == []
            await screenshot(page, f"troubles-{width}")
        wrong = page.locator("#overview-verdict .wrong li")
        await expect(wrong.first).to_contain_text("is lost")
        await wrong.first.get_by_text("What to do").click()
        await expect(wrong.first).to_contain_text("coserve engine remove URL")
        for width in (390, 1600):
            assert await overflows(page, width) == []
            assert await barriers(page) == []
            await screenshot(page, f"remedy-{width}")
        await wrong.first.get_by_role("link", name="Engines").click()
        await page.wait_for_url("**/admin/engines")


async def test_rows_are_looked_through(chromium: Browser, site: Site) -> None:
    lines = [line(f"question-{n}", f"fake:text=answer_{n}") for n in range(30)]
    lines[20] = line("wrong", "fake:status=400")
    batch_id = await add_batch(site.bench.database, site.bench.file_store, lines)
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    async with logged_in(chromium, site, f"batches/{batch_id}") as page:
        await page.get_by_role("link", name="All rows").click()
        await page.get_by_role("link", name="question-7", exact=True).click()
        await expect(page.locator("#row")).to_contain_text("answer 7")
        for width in (390, 1600):
            assert await overflows(page, width) == []
            assert await barriers(page) == []
            await screenshot(page, f"rows-{width}")
        await page.get_by_role("link", name="Next failed").click()
        await expect(page.locator("#row")).to_contain_text("The engine cannot process")
        await page.get_by_role("searchbox", name="custom_id").fill("ion-29")
        await page.get_by_role("button", name="Find").click()
        await expect(page.locator("#rows tbody tr")).to_have_count(1)


async def test_ticked_batches_are_paused_together(chromium: Browser, site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    ids = [await add_batch(database, store, [line(f"r{n}")]) for n in range(3)]
    async with logged_in(chromium, site, "batches") as page:
        await page.locator(f"#row-{ids[0]} input").check()
        await page.locator(f"#row-{ids[1]} input").check()
        # As an update does it: the row is drawn anew, without the tick.
        await page.locator(f"#row-{ids[0]}").evaluate("row => { row.outerHTML = row.outerHTML }")
        await expect(page.locator(f"#row-{ids[0]} input")).to_be_checked()
        await expect(page.locator("#bulk-count")).to_have_text("2 selected")
        for width in (390, 1600):
            assert await overflows(page, width) == []
            assert await barriers(page) == []
            await screenshot(page, f"bulk-{width}")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator(f"#row-{ids[1]}")).to_contain_text("paused")
        await expect(page.locator(f"#row-{ids[2]}")).not_to_contain_text("paused")


async def test_a_whole_file_is_checked_before_it_is_sent(
    chromium: Browser, site: Site, tmp_path: Path
) -> None:
    good = [line(f"r{n}", "Name a river. " * 40) for n in range(3000)]
    bad = [*good, line("r7"), b"{", line("x").replace(b'"POST"', b'"GET"')]
    for name, lines in (("good", good), ("bad", bad)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    async with logged_in(chromium, site, "batches/new") as page:
        chooser = page.get_by_label("Requests, one JSON object a line (JSONL)")
        report, errors = page.locator("#file-report"), page.locator("#file-errors tbody tr")
        await chooser.set_input_files(tmp_path / "bad.jsonl")
        await expect(report).to_contain_text("3,003 lines, 3 errors.", timeout=30_000)
        for number, (line_no, words) in enumerate(
            (("3001", "same as that of line 8"), ("3002", "valid JSON"), ("3003", "method"))
        ):
            await expect(errors.nth(number)).to_contain_text(line_no)
            await expect(errors.nth(number)).to_contain_text(words)
        await expect(page.get_by_role("button", name="Fix 3 lines first")).to_be_disabled()
        await page.locator("#more-options summary").click()
        for width in (390, 1440):
            assert await overflows(page, width) == []
            assert await barriers(page) == []
            await screenshot(page, f"checked-{width}")
        await chooser.set_input_files(tmp_path / "good.jsonl")
        await expect(report).to_contain_text("3,000 lines, no errors.", timeout=30_000)
        await expect(errors.first).to_be_hidden()
        await page.get_by_label("Metadata").fill("team=blue")
        await page.get_by_label("Priority").fill("7")
        await page.get_by_role("button", name="Upload and start").click()
        await expect(page.locator("#priority")).to_contain_text("7")
        await expect(page.locator("#batch-facts")).to_contain_text("blue")


async def test_an_engine_is_given_a_name(chromium: Browser, running: Site) -> None:
    (member,) = running.app.state.engines.members
    async with running.bench.database.unit_of_work() as session:
        await engines.add(session, member.url)
    async with logged_in(chromium, running, "engines") as page:
        await page.get_by_role("button", name="Rename an engine").click()
        await page.get_by_label("Name; empty: its address").fill("rack 2")
        assert await barriers(page) == []
        await page.get_by_role("button", name="Name it").click()
        await expect(page.get_by_role("heading", name="rack 2")).to_be_visible()
