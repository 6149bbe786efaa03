"""The dashboard as a person uses it: real Chromium, gateway, workers, Postgres and Valkey."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from gateway.settings import GatewaySettings
from tests.fixtures.batches import line
from tests.fixtures.installation import MAX_RUNNING, Installation, occupied
from tests.fixtures.visit import Visit

pytestmark = pytest.mark.browser

NUM_ROWS = 60


def _input(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(one + b"\n" for one in lines))
    return path


async def test_a_batch_from_upload_to_download(
    installation: Installation, visit: Visit, tmp_path: Path
) -> None:
    page = visit.page
    await visit.log_in(installation)
    await expect(page.get_by_text("No batches yet")).to_be_visible()
    await expect(page.locator("#curl-example")).to_contain_text(f"{installation.url}/v1/files")

    # A second each, and one at a time until the page was seen moving.
    lines = [
        line(f"row-{number}", f"fake:text=answer_{number} fake:token_ms=800")
        for number in range(NUM_ROWS - 1)
    ]
    lines.append(line("row-bad", "fake:status=400"))
    async with occupied(installation.engine, MAX_RUNNING - 1):
        await visit.submit(_input(tmp_path / "questions.jsonl", lines))
        await page.evaluate("window.samePage = true")

        # It moves by itself: two different counts, then the end, never loaded again.
        await page.wait_for_function(
            "() => { const n = +document.getElementById('count-completed').textContent;"
            f" return n > 0 && n < {NUM_ROWS - 1} && (window.firstCount ??= n) !== n; }}"
        )
    await expect(page.locator("#batch-head .pill")).to_have_text(
        "completed, 1 failed", timeout=60_000
    )
    assert await page.evaluate("window.samePage")
    assert await visit.number("#count-completed") == NUM_ROWS - 1
    assert await visit.number("#count-failed") == 1
    await expect(page.locator("#batch-errors")).to_contain_text("row-bad")
    await expect(page.locator("#batch-timeline")).to_contain_text("Completed")
    await expect(page.locator("#chart-batch canvas")).to_be_visible()
    await expect(page.locator("#announcer")).to_have_text(re.compile("questions.jsonl: completed"))

    async with page.expect_download() as waiting:
        await page.locator("#download-output").click()
    output = (await (await waiting.value).path()).read_text().splitlines()
    answers = {one["custom_id"]: one["response"]["body"] for one in map(json.loads, output)}
    assert set(answers) == {f"row-{number}" for number in range(NUM_ROWS - 1)}
    assert answers["row-7"]["choices"][0]["message"]["content"] == "answer 7"

    await page.get_by_role("navigation", name="Main").get_by_text("Batches").click()
    row = page.get_by_role("row", name=re.compile("questions.jsonl"))
    await expect(row).to_contain_text(f"{NUM_ROWS} of {NUM_ROWS}")
    await expect(row).to_contain_text("completed")


@pytest.mark.thorough
async def test_a_batch_is_cancelled_after_a_question(
    installation: Installation, visit: Visit, tmp_path: Path
) -> None:
    page = visit.page
    await visit.log_in(installation)
    lines = [line(f"row-{number}", "fake:tokens=400 fake:token_ms=50") for number in range(20)]
    await visit.submit(_input(tmp_path / "slow.jsonl", lines))
    await expect(page.locator("#batch-head .pill")).to_have_text("in progress")
    await page.get_by_role("button", name="Cancel batch").click()
    await page.get_by_role("button", name="Go back").click()
    await expect(page.locator("#cancel-dialog")).to_be_hidden()
    await page.get_by_role("button", name="Cancel batch").click()
    await page.get_by_role("button", name="Cancel the batch").click()
    await expect(page.locator("#batch-head .pill")).to_have_text("cancelled", timeout=30_000)
    await expect(page.locator("#batch-progress .big")).to_have_text("0 %")
    assert await visit.number("#count-stopped") == 20
    await expect(page.get_by_role("button", name="Cancel batch")).to_have_count(0)


@pytest.mark.thorough
async def test_a_batch_is_paused_preferred_resumed_and_its_failed_rows_run_again(
    installation: Installation, visit: Visit, tmp_path: Path
) -> None:
    page = visit.page
    await visit.log_in(installation)
    # Those that came to the engine before the pause run on while the batch is paused.
    lines = [line(f"row-{number}", "fake:tokens=20 fake:token_ms=50") for number in range(39)]
    lines.append(line("row-bad", "fake:status=400"))
    async with occupied(installation.engine, MAX_RUNNING):
        await visit.submit(_input(tmp_path / "steered.jsonl", lines))
        await expect(page.locator("#batch-head .pill")).to_have_text("in progress")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator("#batch-head .pill")).to_have_text("paused")
        await expect(page.locator("#time-left")).to_have_text("paused")
    await expect(page.locator("#batch-progress")).to_contain_text("No row is started while")
    done = await visit.number("#count-completed")
    assert done < 39

    await page.get_by_role("button", name="Change").click()
    await page.get_by_label(re.compile("the higher one goes first")).fill("7")
    await page.locator("#priority-confirm").click()
    await expect(page.locator("#priority")).to_contain_text("7")
    assert await visit.number("#count-completed") == done, "nothing was started"

    async with occupied(installation.engine, MAX_RUNNING - 1):
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator("#batch-head .pill")).to_have_text("in progress")
        await expect(page.locator("#tokens-per-s")).to_contain_text("tok/s")
    await expect(page.locator("#batch-head .pill")).to_have_text(
        "completed, 1 failed", timeout=60_000
    )
    assert await visit.number("#count-completed") == 39

    source = page.url.rsplit("/", 1)[1]
    await page.get_by_role("button", name="Retry 1 failed row").click()
    await expect(page.locator("#retry-what")).to_contain_text("will fail again")
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator("#batch-facts")).to_contain_text(source)
    await expect(page.locator("#batch-head .pill")).to_have_text(
        "completed, 1 failed", timeout=60_000
    )
    assert await visit.number("#count-failed") == 1
    await page.locator("#batch-facts").get_by_role("link", name=source).click()
    await expect(page.locator("#retry-link")).to_be_visible()
    await expect(page.get_by_role("button", name="Retry 1 failed row")).to_have_count(0)


@pytest.mark.thorough
async def test_a_wrong_file_is_told_so_and_cannot_be_started(
    installation: Installation, visit: Visit, tmp_path: Path
) -> None:
    page = visit.page
    await visit.log_in(installation)
    await page.get_by_role("link", name="New batch").click()
    chooser = page.get_by_label(re.compile("Requests, one JSON"))
    await chooser.set_input_files(_input(tmp_path / "notes.txt", [b"not JSON"]))
    await expect(page.locator("#file-errors")).to_contain_text("not valid JSON")
    await chooser.set_input_files(_input(tmp_path / "mixed.jsonl", [line("a"), b"{", line("a")]))
    await expect(page.get_by_role("alert")).to_be_hidden()
    await expect(page.locator("#file-chosen")).to_contain_text("model fake-model")
    await expect(page.locator("#file-report")).to_contain_text("3 lines, 2 errors.")
    await expect(page.get_by_role("button", name="Fix 2 lines first")).to_be_disabled()
    errors = page.locator("#file-errors")
    await expect(errors).to_contain_text("not valid JSON")
    await expect(errors).to_contain_text("same as that of line 1")


@pytest.mark.thorough
async def test_the_page_outlives_a_restart_of_the_gateway(
    installation: Installation, visit: Visit
) -> None:
    page = visit.page
    await visit.log_in(installation)
    await page.get_by_role("navigation", name="Main").get_by_text("Engines").click()
    await expect(page.get_by_role("heading", name=re.compile("answering"))).to_be_visible()
    await expect(page.locator("#engine-0")).to_contain_text("fake-model")
    await expect(page.locator("#live")).to_have_attribute("data-state", "live")
    # An open stream of the dashboard is no request that is given time to end.
    grace_s = GatewaySettings().shutdown_grace_s
    assert await installation.stop("gateway") < 0.8 * grace_s
    await expect(page.locator("#live")).to_have_attribute("data-state", "lost")
    await installation.start_gateway()
    await expect(page.locator("#live")).to_have_attribute("data-state", "live")
    installation.engine.down = True
    await expect(page.locator("#engine-0")).to_contain_text("not healthy")
    # That connections were refused in between is said in the console, and is no mistake.
    expected = ("ERR_", "htmx:sse:error", "Failed to fetch")
    visit.complaints = [
        said for said in visit.complaints if not any(word in said for word in expected)
    ]


@pytest.mark.thorough
async def test_it_can_be_used_by_keyboard_in_the_dark_and_left(
    installation: Installation, visit: Visit
) -> None:
    page = visit.page
    await page.goto(f"{installation.url}/admin/engines")
    # The key's field has the focus from the start.
    await page.keyboard.type(installation.admin_key)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Engines")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()

    before = await page.evaluate("document.documentElement.dataset.theme")
    await page.get_by_role("button", name="Switch between light and dark").click()
    after = await page.evaluate("document.documentElement.dataset.theme")
    assert {before, after} == {"light", "dark"}
    assert await page.evaluate("document.documentElement.dataset.theme") == after

    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await page.goto(f"{installation.url}/admin/batches")
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
