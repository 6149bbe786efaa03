"""`coserve batch` against the real gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from batch.intake.upload import Upload, record
from batch.intake.validate import validate
from batch.states import BatchStatus
from batch.transition import move
from coserve.commands.batch.group import app
from coserve.commands.file import app as file_app
from store.models import DEFAULT_PROJECT_ID
from store.repositories import arrival as arrivals
from store.session import Database
from store.types import new_id
from tests.fixtures.live_gateway import Api


def line(custom_id: str) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return orjson.dumps(
        {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    )


async def coserve_batch(api: Api, *arguments: str) -> Result:
    """Run the command in a thread: the gateway it talks to runs in this one."""
    where = ["--base-url", api.base_url, "--api-key", api.key]
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *where])


async def coserve_file(api: Api, *arguments: str) -> Result:
    where = ["--base-url", api.base_url, "--api-key", api.key]
    return await asyncio.to_thread(CliRunner().invoke, file_app, [*arguments, *where])


async def result_file(api: Api, database: Database, content: bytes) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    file_id = new_id("file-")
    stored = await api.app.state.file_store.put(file_id, chunks())
    async with database.unit_of_work() as session:
        await arrivals.announce(session, file_id)
        upload = Upload(file_id, "x.jsonl", "batch_output", stored, None)
        await record(session, upload, DEFAULT_PROJECT_ID)
    return file_id


async def test_submit_follow_and_download(api: Api, database: Database, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(line("a") + b"\n" + line("b"))
    output = await result_file(api, database, b'{"custom_id":"a"}\n')
    errors = await result_file(api, database, b'{"custom_id":"b"}\n')

    async with asyncio.TaskGroup() as tasks:
        command = tasks.create_task(
            coserve_batch(api, "submit", str(path), "--wait", "--metadata", "team=blue")
        )
        async with api.client() as client:
            while not (batches := (await client.batches.list()).data):
                await asyncio.sleep(0.05)
        [batch] = batches
        assert batch.metadata == {"team": "blue"}
        await validate(database, api.app.state.file_store, batch.id)
        async with database.unit_of_work() as session:
            await move(session, batch.id, BatchStatus.FINALIZING)
            values = {
                "num_completed": 1,
                "num_failed": 1,
                "output_file_id": output,
                "error_file_id": errors,
            }
            await move(session, batch.id, BatchStatus.COMPLETED, values=values)
    result = command.result()
    assert result.exit_code == 0, result.output
    assert f"{batch.id}: created over questions.jsonl" in result.output
    assert "completed: 1 completed, 1 failed of 2" in result.output
    assert (tmp_path / "questions.output.jsonl").read_bytes() == b'{"custom_id":"a"}\n'
    assert (tmp_path / "questions.errors.jsonl").read_bytes() == b'{"custom_id":"b"}\n'

    elsewhere = tmp_path / "elsewhere"
    result = await coserve_batch(api, "download", batch.id, "--dir", str(elsewhere))
    assert result.exit_code == 0, result.output
    assert sorted(found.name for found in elsewhere.iterdir()) == [
        f"{batch.id}.errors.jsonl",
        f"{batch.id}.output.jsonl",
    ]


async def test_a_file_that_the_service_refuses(
    api: Api, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(line("a") + b"\n{")
    result = await coserve_batch(api, "submit", str(path), "--no-check")
    assert result.exit_code == 0, result.output
    batch_id = result.output.partition(":")[0]
    await validate(database, api.app.state.file_store, batch_id)

    result = await coserve_batch(api, "get", batch_id)
    assert result.exit_code == 0
    assert f"{batch_id}: failed" in result.output
    assert "line 2: invalid_json_line" in result.output
    result = await coserve_batch(api, "download", batch_id)
    assert result.exit_code == 1
    assert f"It failed in validation: coserve batch get {batch_id}" in result.output
    result = await coserve_batch(api, "cancel", batch_id)
    assert result.exit_code == 1
    assert "409: Cannot cancel a batch with status 'failed'." in result.output


async def test_list_and_cancel(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # however narrow, an id is whole
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a"))
    batch_id = (await coserve_batch(api, "submit", str(path))).output.partition(":")[0]
    result = await coserve_batch(api, "list", "--limit", "5")
    assert result.exit_code == 0, result.output
    assert batch_id in result.output
    assert "validating" in result.output
    result = await coserve_batch(api, "cancel", batch_id)
    assert f"{batch_id}: cancelling" in result.output
    result = await coserve_batch(api, "get", "batch_unknown")
    assert result.exit_code == 1
    assert "404: No batch found" in result.output


async def test_how_a_batch_begins_is_said_on_the_command_line(
    api: Api, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "nightly.jsonl"
    path.write_bytes(line("a"))
    options = ["--priority", "-5", "--paused"]
    submitted = await coserve_batch(api, "submit", str(path), *options)
    assert submitted.exit_code == 0, submitted.output
    batch_id = submitted.output.partition(":")[0]
    assert f"coserve batch wait {batch_id}" in submitted.output
    (row,) = [
        one for one in (await coserve_batch(api, "list")).output.splitlines() if batch_id in one
    ]
    assert "nightly.jsonl" in row
    assert "paused" in row
    async with api.client() as client:
        ours = (await client.batches.retrieve(batch_id)).model_extra or {}
        assert (ours["coserve"]["priority"], ours["coserve"]["paused"]) == (-5, True)
        assert ours["coserve"]["input_filename"] == "nightly.jsonl"
    unknown = await coserve_batch(api, "submit", str(path), "--webhook", "we_nobody")
    assert unknown.exit_code == 1
    assert "No webhook endpoint found" in unknown.output
    early = await coserve_batch(api, "download", batch_id)
    assert f"coserve batch results {batch_id}" in early.output
    cancelled = await coserve_batch(api, "cancel", batch_id)
    assert cancelled.exit_code == 0
    async with database.unit_of_work() as session:
        await move(session, batch_id, BatchStatus.CANCELLED)
    waited = await coserve_batch(api, "wait", batch_id)
    assert (waited.exit_code, f"{batch_id}: cancelled" in waited.output) == (1, True)


async def test_files_are_listed_and_deleted(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a"))
    async with api.client() as client:
        made = await client.files.create(file=("in.jsonl", path.read_bytes()), purpose="batch")
    listed = await coserve_file(api, "list", "--json")
    assert json.loads(listed.output)["filename"] == "in.jsonl"
    gone = await coserve_file(api, "delete", made.id)
    assert (gone.exit_code, f"{made.id} is deleted." in gone.output) == (0, True)
    again = await coserve_file(api, "delete", made.id)
    assert (again.exit_code, "404" in again.output) == (1, True)
    assert (await coserve_file(api, "list", "--json")).output == ""
