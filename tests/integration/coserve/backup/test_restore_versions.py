"""A backup of one version comes back in the other, taken in the middle of a batch."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from coserve.local.postgres import PostgresFiles
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import MODEL, PATIENCE_S
from tests.fixtures.released import POLL_INTERVAL_S, commands, gateway, release, until_ready
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import ROOT, workers
from tests.integration.coserve.backup.test_restoring import empty_url
from tests.integration.gateway.test_rolling_restart import environment
from tests.integration.gateway.test_versions import NUM_LINES, chat, read, submit

__all__ = ["empty_url"]


def cli(root: Path, env: dict[str, str], *arguments: str) -> str:
    """A command line of the code at `root`; what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "coserve", *arguments],
        cwd=root, env=env, text=True, capture_output=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert done.returncode == 0, said
    return said


@asynccontextmanager
async def door(
    root: Path, env: dict[str, str], log: Path, key: str
) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway of the code at `root`."""
    command, url = gateway(env)
    with workers([command], log, root):
        await until_ready(url)
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            yield http


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", ["old", "new"])
async def test_a_backup_in_the_middle_of_a_batch_comes_back_in_the_other_version(
    first: str,
    postgres_server: PostgresFiles,
    empty_url: str,
    broker_url: str,
    tmp_path: Path,
) -> None:
    """The workers of the first drain while rows are at the engine: those rows are asked again."""
    old = release(tmp_path / "released")
    saving, restoring = (old, ROOT) if first == "old" else (ROOT, old)
    source, log, saved = f"saved_{first}", tmp_path / "log", tmp_path / "saved.tar"
    with postgres_server.connect() as connection:
        connection.execute(f"CREATE DATABASE {source}".encode())
    engine = SteeredEngine(FakeSettings(model=MODEL, latency_s=0.02))
    names = [f"row{number}" for number in range(NUM_LINES)]
    async with serving(engine) as engine_url:
        before = environment(postgres_server.url(source), broker_url, engine_url, tmp_path / "a")
        after = environment(empty_url, broker_url, engine_url, tmp_path / "b")
        await asyncio.to_thread(cli, saving, before, "serve", "migrate")
        database = Database(postgres_server.url(source))
        async with database.unit_of_work() as session:
            key = (await keys.create(session, DEFAULT_PROJECT_ID, "test"))[1]
        await database.dispose()
        async with door(saving, before, log, key) as http:
            with workers(commands(saving, before), log, saving) as running:
                ended_id = await submit(http, ["ended"])
                assert await read(http, ended_id) == {"ended": 1}
                engine.held = True
                live_id = await submit(http, names)
                async with asyncio.timeout(PATIENCE_S):
                    while not engine.asked["row0"]:
                        await asyncio.sleep(POLL_INTERVAL_S)
                await asyncio.to_thread(running.stop, PATIENCE_S)
            engine.held = False
            await asyncio.to_thread(cli, saving, before, "backup", str(saved))
        await asyncio.to_thread(cli, restoring, after, "restore", str(saved))
        async with door(restoring, after, log, key) as http:
            assert await read(http, ended_id) == {"ended": 1}
            with workers(commands(restoring, after), log, restoring):
                assert await read(http, live_id) == dict.fromkeys(names, 1)
            await chat(http)
    with postgres_server.connect() as connection:
        connection.execute(f"DROP DATABASE {source} WITH (FORCE)".encode())
