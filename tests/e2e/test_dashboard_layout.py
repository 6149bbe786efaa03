"""Pages as they are drawn: nothing runs out of its box, text has five sizes, times are local."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Browser, Page, expect

from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import add_batch, line
from tests.fixtures.dashboard import Site, make_site, site

__all__ = ["site"]

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

# Each rectangle of drawn text lies in every box around it, and in what of a box is not scrolled.
OVERFLOWS = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (!node.data.trim() || node.parentElement.closest("pre, dialog, .for-readers")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const { left, right, width } of range.getClientRects()) {
      if (!width) continue;
      for (let box = node.parentElement; box !== document.body; box = box.parentElement) {
        if (getComputedStyle(box).display === "inline") continue;
        const { left: from, right: to } = box.getBoundingClientRect();
        if (left < from - 1 || right > to + 1) { found.push(node.data.trim()); break; }
      }
    }
  }
  return found;
}"""

SIZES = """() => {
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (node.data.trim() && node.parentElement.getClientRects().length)
      found.add(getComputedStyle(node.parentElement).fontSize);
  }
  return [...found];
}"""
ZONE = "Asia/Kolkata"
WIDTHS = (390, 1400)
SETTLE_LIMIT_S = 5.0
LONG_WAIT = "waiting before rows are tried again · about 3 h 40 min left"


@asynccontextmanager
async def logged_in(chromium: Browser, at: Site, path: str) -> AsyncIterator[Page]:
    """A page far from UTC, without its stream: it stays as a test arranges it."""
    async with await chromium.new_context(timezone_id=ZONE) as context:
        page = await context.new_page()
        await page.route("**/admin/events**", lambda route: route.abort())
        await page.goto(f"{at.url}/admin/{path}")
        await page.locator("#key").fill(at.key)
        await page.locator("#key").press("Enter")
        await page.wait_for_url(f"**/admin/{path}")
        yield page


async def overflows(page: Page, width: int) -> list[str]:
    """What still runs out of its box at that width once charts have followed it, a frame later."""
    await page.set_viewport_size({"width": width, "height": 900})
    deadline = time.monotonic() + SETTLE_LIMIT_S
    while True:
        found: list[str] = await page.evaluate(OVERFLOWS)
        page_width = await page.evaluate("document.documentElement.scrollWidth")
        if page_width > width:
            found.append(f"the page is {page_width} px wide")
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.05)


async def say(page: Page, words: dict[str, str]) -> None:
    """Put words in place of what stands there."""
    for selector, text in words.items():
        await page.locator(selector).first.evaluate("(e, text) => { e.textContent = text; }", text)


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_list_keeps_in_its_boxes(chromium: Browser, site: Site, width: int) -> None:
    await add_batch(site.bench.database, site.bench.file_store, [line("a"), line("b")])
    async with logged_in(chromium, site, "batches") as page:
        await say(page, {".batches td.figure": LONG_WAIT})
        assert await overflows(page, width) == []


@pytest.mark.parametrize("width", WIDTHS)
async def test_a_batch_keeps_in_its_boxes(chromium: Browser, site: Site, width: int) -> None:
    lines = [line("c" * 60, "fake:status=400"), line("b")]
    batch_id = await add_batch(site.bench.database, site.bench.file_store, lines)
    await site.bench.dispatch(FakeEngineClient(FakeEngine()))
    async with logged_in(chromium, site, f"batches/{batch_id}") as page:
        await expect(page.locator("#batch-errors table")).to_be_visible()
        counts = page.locator("#batch-progress .counts")
        for name, text in (("Pace", "less than 1 row/h"), ("Tokens", "1,240,300 tok/s")):
            await counts.evaluate(
                "(e, [name, text]) => { e.insertAdjacentHTML('beforeend',"
                " `<div><dt>${name}</dt><dd>${text}</dd></div>`); }",
                [name, text],
            )
        await say(page, {"#time-left": LONG_WAIT, "#count-completed": "48,213"})
        assert await overflows(page, width) == []


@pytest.mark.parametrize("width", WIDTHS)
async def test_engines_and_the_form_keep_in_their_boxes(
    chromium: Browser, site: Site, width: int
) -> None:
    engine = FakeEngineClient(FakeEngine())
    async with make_site(site.bench.database, engine) as with_engine:
        for path in ("engines", "batches/new"):
            async with logged_in(chromium, with_engine, path) as page:
                assert await overflows(page, width) == []


async def test_charts_are_in_local_time_and_say_utc_where_one_points(
    chromium: Browser, site: Site
) -> None:
    async with (
        make_site(site.bench.database, FakeEngineClient(FakeEngine())) as with_engine,
        logged_in(chromium, with_engine, "engines") as page,
    ):
        chart = page.locator("#chart-engine-0")
        await expect(chart.locator("canvas")).to_be_visible()
        at_s = await chart.evaluate("e => JSON.parse(e.dataset.chart).x[0]")
        here, utc = (datetime.fromtimestamp(at_s, zone) for zone in (ZoneInfo(ZONE), UTC))
        legend = chart.locator(".u-legend tr").first
        await expect(legend).to_contain_text(f"Time{here:%H:%M}")
        await expect(legend).not_to_contain_text("UTC")
        await chart.locator(".u-over").hover()
        await expect(legend).to_contain_text(f"{here:%H:%M:%S} ({utc:%H:%M:%S} UTC)")


async def test_instants_are_local_and_in_utc_on_hover(chromium: Browser, site: Site) -> None:
    batch_id = await add_batch(site.bench.database, site.bench.file_store, [line("a")])
    async with logged_in(chromium, site, f"batches/{batch_id}") as page:
        one = page.locator("#batch-timeline time").first
        await expect(one).to_have_attribute("title", re.compile(r"^\d{4}-.* UTC$"))
        machine = datetime.fromisoformat(await one.get_attribute("datetime") or "")
        await expect(one).to_have_text(f"{machine.astimezone(ZoneInfo(ZONE)):%Y-%m-%d %H:%M:%S}")


async def test_text_has_five_sizes_and_the_shipped_font(chromium: Browser, site: Site) -> None:
    batch_id = await add_batch(site.bench.database, site.bench.file_store, [line("a")])
    paths = ("", "batches", f"batches/{batch_id}", f"batches/{batch_id}/rows", "engines", "usage",
             "projects/proj_default", "webhooks", "audit", "playground", "batches/new")  # fmt: skip
    async with logged_in(chromium, site, "usage") as page:
        for path in paths:
            await page.goto(f"{site.url}/admin/{path}")
            sizes = set(await page.evaluate(SIZES))
            assert sizes <= {"12px", "14px", "16px", "20px", "28px"}, (path, sizes)
        assert await page.evaluate("document.fonts.ready.then(f => f.check('14px Inter'))")
        loaded = "[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family)"
        assert "Inter" in str(await page.evaluate(loaded))
