"""The last release and this version, side by side on this version's tables, as in a rollout."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import MODEL, PATIENCE_S, line
from tests.fixtures.released import POLL_INTERVAL_S, commands, gateway, release, until_ready
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import ROOT, Workers, workers
from tests.integration.gateway.test_rolling_restart import environment

NUM_LINES = 30


@pytest.fixture
def old_root(tmp_path: Path) -> Path:
    """The code of the last release."""
    return release(tmp_path / "released")


async def submit(http: httpx.AsyncClient, names: Sequence[str]) -> str:
    content = b"\n".join(line(name, f"{name} fake:text={name}") for name in names)
    form = {"file": ("in.jsonl", content)}
    uploaded = await http.post("/v1/files", data={"purpose": "batch"}, files=form)
    assert uploaded.status_code == 200, uploaded.text
    wanted = {
        "input_file_id": uploaded.json()["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    made = await http.post("/v1/batches", json=wanted)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


async def read(http: httpx.AsyncClient, batch_id: str) -> Counter[str]:
    """The custom ids in the batch's output, once it is completed."""
    async with asyncio.timeout(PATIENCE_S):
        while (batch := (await http.get(f"/v1/batches/{batch_id}")).json())[
            "status"
        ] != "completed":
            assert batch["status"] in ("validating", "in_progress", "finalizing"), batch
            await asyncio.sleep(POLL_INTERVAL_S)
    content = (await http.get(f"/v1/files/{batch['output_file_id']}/content")).text
    return Counter(json.loads(one)["custom_id"] for one in content.splitlines())


async def chat(http: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "fake:text=hello"}]}
    reply = await http.post("/v1/chat/completions", json=body | {"stream": True})
    assert reply.text.endswith("data: [DONE]\n\n"), reply.text


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_two_versions_share_the_newer_ones_tables(
    database: Database, database_url: str, broker_url: str, old_root: Path, tmp_path: Path
) -> None:
    engine = SteeredEngine(FakeSettings(model=MODEL, latency_s=0.02))
    async with database.unit_of_work() as session:
        key = (await keys.create(session, DEFAULT_PROJECT_ID, "test"))[1]
    headers = {"authorization": f"Bearer {key}"}
    logs = {name: tmp_path / f"{name}.log" for name in ("old", "new")}

    def client(url: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=60)

    async def through(*doors: tuple[httpx.AsyncClient, httpx.AsyncClient, str]) -> None:
        """A batch into one door of each pair, its output out of the other; each line asked once."""
        wanted = {word: [f"{word}{number}" for number in range(NUM_LINES)] for _, _, word in doors}
        ids = {word: await submit(door, wanted[word]) for door, _, word in doors}
        for _, other, word in doors:
            assert await read(other, ids[word]) == dict.fromkeys(wanted[word], 1)
            assert {engine.asked[name] for name in wanted[word]} == {1}
            await chat(other)

    async with serving(engine) as engine_url:
        env = environment(database_url, broker_url, engine_url, tmp_path / "home")
        (old_gateway, old_url), (new_gateway, new_url) = gateway(env), gateway(env)
        old_commands, new_commands = commands(old_root, env), commands(ROOT, env)
        with ExitStack() as running:
            running.enter_context(workers([old_gateway], logs["old"], old_root))
            running.enter_context(workers([new_gateway], logs["new"], ROOT))
            old_workers: Workers = running.enter_context(
                workers(old_commands, logs["old"], old_root)
            )
            await until_ready(old_url)
            await until_ready(new_url)
            async with client(old_url) as old, client(new_url) as new:
                await through((new, old, "old-workers-"))
                running.enter_context(workers(new_commands, logs["new"], ROOT))
                await through((old, new, "both-a-"), (new, old, "both-b-"))
                await asyncio.to_thread(old_workers.stop, PATIENCE_S)
                await through((old, new, "new-workers-"))
    for log in logs.values():
        assert "UndefinedColumn" not in log.read_text()
        assert "UndefinedTable" not in log.read_text()
