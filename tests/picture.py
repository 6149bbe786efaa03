"""The pictures of README and docs, taken anew: `make run` in one terminal, this in another.

    .venv/bin/python -m tests.picture      (3 minutes)

A batch of 1,200 rows runs beside chat for two minutes. Then real Chromium logs in and takes the
overview, the page of the batch, its rows and a phone's view, and the batch is cancelled. Look at
what it wrote. With `--look FOLDER` every page is taken there too, at 1440 and 390 pixels, in light
and in dark.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from pathlib import Path
from typing import Final, Literal

import openai
import orjson
from playwright.async_api import Page, async_playwright

from coserve.setup.tools import find_browser
from tests.fixtures.browser import FLAGS

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
NUM_ROWS: Final = 1200
NUM_CHATS_AT_ONCE: Final = 2
WIDTH, HEIGHT = 1440, 1240  # all of the overview, and cards side by side
PHONE: Final = (390, 844)
BOOKS: Final = ("Middlemarch", "Dracula", "Emma", "Walden", "Persuasion", "Kim", "Hard Times")


def rows(model: str) -> bytes:
    """The batch: short reviews of books."""
    return b"\n".join(
        orjson.dumps(
            {
                "custom_id": f"review-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "model": model,
                    "max_tokens": 48,
                    "temperature": 0,
                    "seed": number,  # rows that ask the same would run once
                    "messages": [{"role": "user", "content": f"Review {book} in one sentence."}],
                },
            }
        )
        for number, book in zip(range(NUM_ROWS), itertools.cycle(BOOKS), strict=False)
    )


async def chat(client: openai.AsyncOpenAI, model: str) -> None:
    """One caller who asks again as soon as it was answered."""
    for number in itertools.count():
        stream = await client.chat.completions.create(
            model=model,
            max_tokens=40,
            stream=True,
            messages=[{"role": "user", "content": f"Tell me fact {number} about the sea."}],
        )
        async for _ in stream:
            pass


def pages(batch_id: str) -> dict[str, str]:
    """Every page by the name of its picture."""
    batch = f"batches/{batch_id}"
    return {
        "overview": "",
        "overview-14d": "?window=14d",
        "batches": "batches",
        "batch": batch,
        "rows": f"{batch}/rows",
        "row": f"{batch}/rows?line=1",
        "new-batch": "batches/new",
        "playground": "playground",
        "engines": "engines",
        "scheduler": "scheduler",
        "isolation": "isolation",
        "projects": "projects",
        "project": "projects/proj_default",
        "webhooks": "webhooks",
        "usage": "usage",
        "audit": "audit",
    }


async def take(url: str, key: str, batch_id: str, look: Path | None) -> None:
    """Log in and write the pictures."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_browser(), args=[*FLAGS])
        page = await browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="UTC", color_scheme="light"
        )
        await page.goto(f"{url}/admin/batches")
        await page.get_by_label("API key").fill(key)
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_role("heading", name="Batches", exact=True).wait_for()
        await _shot(page, f"{url}/admin", "overview.png")
        await _shot(page, f"{url}/admin/batches/{batch_id}", "dashboard.png")
        await _shot(page, f"{url}/admin/batches/{batch_id}/rows?line=2", "rows.png")
        await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        await _shot(page, f"{url}/admin", "overview-phone.png")
        if look is not None:
            await take_all(page, url, batch_id, look)
        await browser.close()


async def take_all(page: Page, url: str, batch_id: str, look: Path) -> None:
    """Every page, on a desk and on a phone, in light and in dark."""
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        await page.emulate_media(color_scheme=theme)
        for width, height in ((WIDTH, 900), PHONE):
            await page.set_viewport_size({"width": width, "height": height})
            for name, path in pages(batch_id).items():
                await page.goto(f"{url}/admin/{path}")
                await page.wait_for_timeout(700)
                await page.screenshot(path=look / f"{name}-{width}-{theme}.png", full_page=True)


async def _shot(page: Page, url: str, name: str) -> None:
    await page.goto(url)
    await page.wait_for_timeout(5000)  # charts get their second reading
    await page.screenshot(path=IMAGES / name)
    print(f"wrote {(IMAGES / name).relative_to(ROOT)}")


async def main(url: str, key: str, seconds: float, look: Path | None) -> None:
    """Make load, take the pictures, cancel the batch."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key) as client:
        model = (await client.models.list()).data[0].id
        file = await client.files.create(file=("book-reviews.jsonl", rows(model)), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        callers = [asyncio.ensure_future(chat(client, model)) for _ in range(NUM_CHATS_AT_ONCE)]
        try:
            await asyncio.wait(callers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            await take(url, key, batch.id, look)
        finally:
            for caller in callers:
                caller.cancel()
            outcomes = await asyncio.gather(*callers, return_exceptions=True)
            await client.batches.cancel(batch.id)
    for outcome in outcomes:
        if not isinstance(outcome, asyncio.CancelledError) and isinstance(outcome, Exception):
            raise outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default=None, help="default: .coserve/admin-key")
    parser.add_argument("--seconds", type=float, default=120, help="of load before the pictures")
    parser.add_argument("--look", type=Path, default=None, help="a folder for every page")
    chosen = parser.parse_args()
    if chosen.look is not None:
        chosen.look.mkdir(parents=True, exist_ok=True)
    admin_key = chosen.key or (ROOT / ".coserve" / "admin-key").read_text().strip()
    asyncio.run(main(chosen.url, admin_key, chosen.seconds, chosen.look))
