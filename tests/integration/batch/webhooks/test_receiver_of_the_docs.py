"""The receiver that docs/webhooks.md shows, run as it stands there."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from batch.webhooks import signature
from coserve.local.ports import free_port
from store.session import Database
from tests.fixtures.webhooks import add_endpoint, deliver_now, deliveries_to, end_batch

PAGE = Path(__file__).parents[4] / "docs/webhooks.md"


@pytest.mark.contract("W-05")
async def test_it_verifies_and_tells_each_event_once(database: Database, tmp_path: Path) -> None:
    (program,) = re.findall(
        r"```python\n(import os\n.*?serve_forever\(\)\n)```", PAGE.read_text(), re.DOTALL
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}/openai-events"
    endpoint = await add_endpoint(database, url)
    env = {
        "OPENAI_WEBHOOK_SECRET": signature.shown(endpoint.secret),
        "OPENAI_API_KEY": "none",
        "PORT": str(port),
    }
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | env,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
    try:
        async with httpx.AsyncClient() as client, asyncio.timeout(30):
            while True:
                try:
                    forged = await client.post(
                        url,
                        content=b"{}",
                        headers={
                            "webhook-id": "wh_1",
                            "webhook-timestamp": "1",
                            "webhook-signature": "v1,xxx",
                        },
                    )
                    break
                except httpx.TransportError:
                    assert process.poll() is None
                    await asyncio.sleep(0.1)
            assert forged.status_code == 400
            assert (await client.post(url, content=b"{}")).status_code == 400
        batch_id = await end_batch(database)
        await deliver_now(database)
    finally:
        process.kill()
        process.wait()
    (delivery,) = await deliveries_to(database, endpoint.id)
    assert (delivery.status, delivery.last_status) == ("delivered", 204)
    assert said.read_text() == f"batch.cancelled {batch_id}\n"
