"""The browser, and the loud line where there is none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

from coserve.setup.browser import find_browser
from tests.fixtures.installation import installation
from tests.fixtures.visit import visit

__all__ = ["installation", "visit"]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REQUIRED = "COSERVE_REQUIRE_BROWSER"
NUM_NOT_RUN = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a browser its tests are skipped, and the end of the run says so."""
    if find_browser() is not None:
        return
    wanting = [item for item in items if item.get_closest_marker("browser")]
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason="no Chromium on PATH"))
    config.stash[NUM_NOT_RUN] = len(wanting)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The loud line."""
    num_not_run = terminalreporter.config.stash.get(NUM_NOT_RUN, 0)
    if num_not_run:
        terminalreporter.write_sep("!", red=True, bold=True)
        terminalreporter.write_line(
            f"browser tests NOT RUN: {num_not_run}, as there is no Chromium on PATH "
            "(as root: make setup-browser)",
            red=True,
            bold=True,
        )
        terminalreporter.write_sep("!", red=True, bold=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where a browser is required, its absence fails the run."""
    if session.config.stash.get(NUM_NOT_RUN, 0) and os.environ.get(REQUIRED) == "1":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    """A real browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_browser(), args=[*FLAGS])
        yield browser
        await browser.close()
