"""Real disks without room: chat goes on, batches wait, and all ends well when there is some."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batch.files import make_file_store
from batch.settings import BatchSettings
from batch.states import BatchStatus
from batch.storage import StageWaits
from batch.worker.app import make_app
from batch.worker.drain import DrainPipe
from batch.worker.stages import Stages
from coserve.local import postgres
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import (
    PATIENCE_S,
    Bench,
    add_batch,
    file_lines,
    line,
    read_batch,
)
from tests.fixtures.databases import TEMPLATE
from tests.fixtures.small_disk import SmallDisk, small_disk
from tests.integration.gateway.conftest import MODEL, Online

NUM_LINES = 300
ANSWER = "fake:tokens=20 fake:width=400 fake:token_ms=50"
"""Eight kB that take a second: some rows are at the engine when the disk fills up."""
NAME = "on_a_small_disk"


@pytest.fixture
def database_disk(postgres_server: postgres.PostgresFiles) -> Iterator[SmallDisk]:
    with (
        tempfile.TemporaryDirectory(prefix="cst-small-") as folder,
        small_disk(Path(folder), size_mib=48) as disk,
    ):
        Path(folder).chmod(0o755)
        place = Path(folder) / "tables"
        place.mkdir()
        account = postgres_server.account
        if account is not None:
            os.chown(place, account.uid, account.gid)
        with postgres_server.connect() as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        yield disk
        disk.clear()
        with postgres_server.connect() as connection:
            connection.execute("DROP TABLESPACE small")


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, postgres_server: postgres.PostgresFiles
) -> Iterator[str]:
    """Its tables lie on the small disk where a test has one; what Postgres logs never does."""
    where = ""
    if "database_disk" in request.fixturenames:
        request.getfixturevalue("database_disk")
        where = " TABLESPACE small"
    with postgres_server.connect() as connection:
        connection.execute(f"CREATE DATABASE {NAME} TEMPLATE {TEMPLATE}{where}".encode())
    yield postgres_server.url(NAME)
    with postgres_server.connect() as connection:
        connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)".encode())


async def _chats(online: Online) -> None:
    async with online.client() as client:
        await client.chat.completions.create(**online.chat("a fake:tokens=2"))


async def _until_said(online: Online, full: list[str] | None) -> None:
    """Until /readyz names the full places, chatting meanwhile."""
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
        while True:
            await _chats(online)
            said = await http.get(f"{online.url}/readyz")
            # A full disk is no reason to send requests elsewhere.
            assert (said.status_code, said.json()["status"]) == (200, "ready")
            if said.json().get("storage_full") == full:
                break
            await asyncio.sleep(0.1)
        metrics = (await http.get(f"{online.url}/metrics")).text
    for store in ("database", "files"):
        is_full = full is not None and store in full
        assert f'coserve_storage_full{{store="{store}"}} {float(is_full)}' in metrics


async def test_postgres_without_room(
    database_disk: SmallDisk, online: Online, database: Database
) -> None:
    bench = Bench(database)
    lines = [line(f"r{n}", ANSWER) for n in range(NUM_LINES)]
    batch_id = await add_batch(database, bench.file_store, lines, model=MODEL)
    await _chats(online)
    engine = HttpEngineClient(online.app.state.engines.members[0].url)
    dispatching = asyncio.ensure_future(bench.dispatch(engine))
    await online.until_engine_is_busy()
    database_disk.fill()
    await _until_said(online, ["database"])
    assert not dispatching.done()
    assert (await read_batch(database, batch_id)).num_completed < NUM_LINES
    database_disk.clear()
    ending = await asyncio.wait_for(dispatching, PATIENCE_S)
    await engine.close()
    # It kept its lease and its answers: none was asked for twice, none counts as a loss.
    assert (ending.lease_lost, ending.num_written, ending.num_fenced) == (False, NUM_LINES, 0)
    assert (await read_batch(database, batch_id)).num_completed == NUM_LINES


async def test_a_file_store_without_room(
    online: Online, database: Database, broker_url: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "files", size_mib=4) as disk:
        settings = BatchSettings(
            database_url=online.app.state.settings.database_url,
            broker_url=broker_url,
            home=tmp_path,
        )
        bench = Bench(database)
        batch_id = await add_batch(
            database, bench.file_store, [line(f"r{n}") for n in range(9)], model=MODEL
        )
        engine = HttpEngineClient(online.app.state.engines.members[0].url)
        await bench.dispatch(engine)
        await engine.close()
        stages = Stages(make_app(settings), settings, DrainPipe())
        disk.fill()
        with pytest.raises(StageWaits):
            await stages.stages()
        assert (await read_batch(database, batch_id)).status == BatchStatus.FINALIZING
        await _until_said(online, ["files"])
        async with online.http() as http:
            form: dict[str, Any] = {
                "files": {"file": ("in.jsonl", line("a"))},
                "data": {"purpose": "batch"},
            }
            refused = await http.post("/v1/files", **form)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_full")
            disk.clear()
            assert (await http.post("/v1/files", **form)).status_code == 200
        await stages.stages()
        await stages.aclose()
        batch = await read_batch(database, batch_id)
        assert batch.status == BatchStatus.COMPLETED
        assert len(await file_lines(make_file_store(settings), batch.output_file_id)) == 9
