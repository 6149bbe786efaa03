"""The playground in real Chromium: an answer that streams, its latencies, its batch line."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import expect

from tests.e2e.test_dashboard_layout import overflows
from tests.fixtures.drawn import barriers, screenshot
from tests.fixtures.installation import Installation
from tests.fixtures.visit import Visit

pytestmark = [pytest.mark.browser, pytest.mark.thorough]


async def test_one_chat_streams_and_is_measured(visit: Visit, installation: Installation) -> None:
    await visit.log_in(installation)
    page = visit.page
    await page.get_by_role("link", name="Playground").click()
    await page.get_by_label("Prompt").fill("fake:tokens=6 fake:token_ms=30 tell me")
    line = json.loads(await page.locator("#batch-line").inner_text())
    assert line["url"] == "/v1/chat/completions"
    assert line["body"]["messages"][0]["content"].endswith("tell me")
    assert line["body"]["max_completion_tokens"] == 256
    await page.get_by_role("button", name="Ask").click()
    await expect(page.locator("#ended")).to_contain_text("Ended by")
    assert (await page.locator("#answer").inner_text()).strip()
    await expect(page.locator("#ttft")).to_have_text(re.compile(r"^\d+ ms$"))
    await expect(page.locator("#tbt")).to_have_text(re.compile(r"^\d+ ms$"))
    await expect(page.locator("#tokens")).to_have_text(re.compile(r"^\d+, 6$"))
    for width in (390, 1600):
        assert await overflows(page, width) == []
        assert await barriers(page) == []
        await screenshot(page, f"playground-{width}")

    await page.get_by_label("Prompt").fill("fake:tokens=2000 fake:token_ms=50 at length")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.locator("#answer")).not_to_be_empty()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#ended")).to_contain_text("Stopped")
    await expect(page.get_by_role("button", name="Ask")).to_be_enabled()
    assert visit.complaints == []
    assert await visit.violations() == []
