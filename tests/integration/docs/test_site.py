"""The built site in a real browser: search finds guides first, pages fit screens."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.browser

GUIDES = {
    "retry failed rows": "batches/",
    "rate limit": "limits/",
    "pause batch": "batches/",
    "openai": "api/",
    "api key": "api/",
    "webhook signature": "webhooks/",
    "upload file": "files/",
    "kubernetes": "deploy/kubernetes/",
    "vllm": "other-engines/",
    "backup": "operations/backup/",
}
"""What somebody types, and the page that they want first."""


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *said: Any) -> None:
        del said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site."""
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin"})
    handler = functools.partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
async def page(chromium: Browser, site: str) -> AsyncIterator[Page]:
    one = await chromium.new_page(viewport={"width": 1440, "height": 900})
    await one.goto(site)
    yield one
    await one.close()


async def found(page: Page, typed: str) -> list[str]:
    """Where the site's own search leads, first to last."""
    await page.reload()  # so that no result is of what was typed before
    box = page.locator("input.md-search__input")
    await box.click()
    await box.fill(typed)
    await box.press("End")  # the site listens to keys
    results = page.locator("a.md-search-result__link")
    await results.first.wait_for()
    links = await results.evaluate_all("all => all.map(one => one.href)")
    return [link.removeprefix(page.url.partition("?")[0]).split("?")[0] for link in links]


async def test_what_people_search_for_leads_to_its_guide_first(page: Page) -> None:
    first = {typed: (await found(page, typed))[0].partition("#")[0] for typed in GUIDES}
    assert first == GUIDES


async def test_decisions_and_research_are_found_behind_guides(page: Page) -> None:
    assert any("decisions/" in one for one in await found(page, "messages only wake workers"))
    links = await found(page, "simulate policies")
    assert any(one.startswith("simulate/") for one in links)
    assert not [one for one in links if one.startswith("bench/")]


@pytest.mark.parametrize("width", [390, 1440])
async def test_the_start_page_has_six_cards_and_nothing_beside_the_screen(
    chromium: Browser, site: str, width: int
) -> None:
    one = await chromium.new_page(viewport={"width": width, "height": 900})
    await one.goto(site)
    assert await one.locator(".grid.cards > ul > li").count() == 6
    assert await one.evaluate("document.documentElement.scrollWidth") <= width
    await one.close()


async def test_nothing_of_it_comes_from_another_host(chromium: Browser, site: str) -> None:
    one = await chromium.new_page()
    asked: list[str] = []
    one.on("request", lambda request: asked.append(request.url))
    for path in ("", "about/", "settings/"):
        await one.goto(site + path)
    assert [url for url in asked if not url.startswith((site, "data:"))] == []
    await one.close()
