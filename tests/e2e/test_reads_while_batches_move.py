"""Nobody who looks at a batch meets an error because it moves from status to status meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from tests.fixtures.batches import PATIENCE_S, line
from tests.fixtures.dashboard import log_in
from tests.fixtures.installation import Installation

pytestmark = pytest.mark.thorough

NUM_BATCHES = 30
NUM_WRITERS = 3
WANTED = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}


async def test_whoever_looks_is_answered(installation: Installation) -> None:
    headers = {"Authorization": f"Bearer {installation.admin_key}"}
    statuses: Counter[str] = Counter()
    made: list[str] = []
    ended = asyncio.Event()

    async with (
        httpx.AsyncClient(base_url=installation.url, headers=headers, timeout=30) as api,
        httpx.AsyncClient(base_url=installation.url, timeout=30) as browser,
    ):
        assert (await log_in(browser, installation.admin_key)).status_code == 303

        async def make_and_poll() -> None:
            for _ in range(NUM_BATCHES // NUM_WRITERS):
                data = b"\n".join(line(f"r{n}") for n in range(3))
                files = {"file": ("rows.jsonl", data)}
                file = await api.post("/v1/files", data={"purpose": "batch"}, files=files)
                wanted = {"input_file_id": file.json()["id"], **WANTED}
                batch = await api.post("/v1/batches", json=wanted)
                assert batch.status_code == 200, batch.text
                made.append(batch.json()["id"])
                status = ""
                while status != "completed":
                    found = await api.get(f"/v1/batches/{made[-1]}")
                    assert found.status_code == 200, found.text
                    status = found.json()["status"]
                    statuses[status] += 1

        async def look(client: httpx.AsyncClient, path: str) -> None:
            while not ended.is_set():
                last = made[-1] if made else ""
                if last or "{}" not in path:
                    found = await client.get(path.format(last))
                    assert found.status_code == 200, (path, found.text)
                await asyncio.sleep(0.05)

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for client, path in (
                (api, "/v1/batches"),
                (api, "/v1/batches/{}/results"),
                (browser, "/admin/batches"),
                (browser, "/admin/batches/{}"),
            ):
                group.create_task(look(client, path))
            async with asyncio.TaskGroup() as writers:
                for _ in range(NUM_WRITERS):
                    writers.create_task(make_and_poll())
            ended.set()
    assert statuses["completed"] == NUM_BATCHES
    assert {"validating", "in_progress", "finalizing"} <= set(statuses)
    assert "unexpected error" not in installation.log.read_text()
