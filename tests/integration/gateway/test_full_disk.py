"""Disks without room, disks and servers that take no writes: chat goes on, batches wait."""

from __future__ import annotations

import asyncio
import json
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


async def test_a_file_store_that_takes_no_writes(
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
        async with online.http() as http:
            form: dict[str, Any] = {
                "files": {"file": ("in.jsonl", line("a"))},
                "data": {"purpose": "batch"},
            }
            kept = (await http.post("/v1/files", **form)).json()["id"]
            disk.allow_writes(False)
            await stages.stages()
            assert (await read_batch(database, batch_id)).status == BatchStatus.FINALIZING
            refused = await http.post("/v1/files", **form)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (503, "storage_unavailable")
            assert "Read-only" not in error["message"]
            assert (await http.get("/readyz")).json()["storage_full"] == ["files_away"]
            assert (await http.get(f"/v1/files/{kept}/content")).content == line("a")
            await _chats(online)
            disk.allow_writes(True)
            assert (await http.post("/v1/files", **form)).status_code == 200
        async with asyncio.timeout(PATIENCE_S):
            while (await read_batch(database, batch_id)).status != BatchStatus.COMPLETED:
                await stages.stages()
                await asyncio.sleep(0.1)
        await stages.aclose()
        batch = await read_batch(database, batch_id)
        assert len(await file_lines(make_file_store(settings), batch.output_file_id)) == 9


async def test_a_database_that_takes_no_writes(
    postgres_server: postgres.PostgresFiles, online: Online, database: Database
) -> None:
    """As after a failover: whoever is connected reads from a server that is no longer the first."""

    def server_says(statement: str) -> None:
        with postgres_server.connect() as connection:
            connection.execute(statement.encode())

    bench = Bench(database)
    lines = [line(f"r{n}", ANSWER) for n in range(NUM_LINES)]
    batch_id = await add_batch(database, bench.file_store, lines, model=MODEL)
    await _chats(online)
    engine = HttpEngineClient(online.app.state.engines.members[0].url)
    dispatching = asyncio.ensure_future(bench.dispatch(engine))
    await online.until_engine_is_busy()
    server_says("ALTER SYSTEM SET default_transaction_read_only = on")
    server_says("SELECT pg_reload_conf()")
    try:
        async with asyncio.timeout(PATIENCE_S), online.http() as http:
            while True:
                await _chats(online)
                form = {"file": ("in.jsonl", line("a"))}
                refused = await http.post("/v1/files", files=form, data={"purpose": "batch"})
                if refused.status_code != 200:
                    break
                await asyncio.sleep(0.1)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (503, "database_unavailable")
            assert "takes no writes" in error["message"]
            said = await http.get("/statusz")
            assert said.status_code == 503
            assert said.json()["parts"]["database"]["why"] == "takes no writes"
            while "The database takes no writes" not in json.dumps(said.json()["verdict"]):
                await asyncio.sleep(0.1)
                said = await http.get("/statusz")
            await _chats(online)
    finally:
        server_says("ALTER SYSTEM RESET default_transaction_read_only")
        server_says("SELECT pg_reload_conf()")
    ending = await asyncio.wait_for(dispatching, PATIENCE_S)
    if ending.more_work:  # another server may have taken its lease meanwhile
        await bench.dispatch(engine)
    await engine.close()
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (NUM_LINES, 0)
