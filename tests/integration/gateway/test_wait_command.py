"""`coserve batch submit --wait` before the real gateway: why it waits, pauses, predicted end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
from openai.types import Batch
from sqlalchemy import text
from typer.testing import CliRunner, Result

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from coserve.commands.batch.group import app
from engine_adapter.client.base import CHAT_PATH
from store.session import Database
from tests.integration.gateway.conftest import MODEL, Online

DONE = (
    "UPDATE batch_rows SET status = 'succeeded' WHERE batch_id = :id AND line_no <= 20",
    "UPDATE batches SET num_completed = 20, num_results = 20 WHERE id = :id",
    "INSERT INTO row_results (row_id, batch_id, seq, succeeded, line, created_at)"
    " SELECT id, batch_id, line_no, true, '{}',"
    " statement_timestamp() - make_interval(secs => 10 * (20 - line_no))"
    " FROM batch_rows WHERE batch_id = :id AND line_no <= 20",
)


def line(custom_id: str) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT_PATH, "body": body})


async def looked_twice(online: Online) -> None:
    """Until the command has begun a look after now, and ended it."""
    counter = 'coserve_http_requests_total{method="GET",route="/batches/{batch_id}",status="200"} '

    async def num_polls() -> float:
        async with online.http() as http:
            lines = (await http.get("/metrics")).text.splitlines()
        return sum(float(one.removeprefix(counter)) for one in lines if one.startswith(counter))

    enough = await num_polls() + 2
    async with asyncio.timeout(60):
        while await num_polls() < enough:
            await asyncio.sleep(0.1)


async def change(database: Database, batch_id: str, *statements: str) -> None:
    async with database.unit_of_work() as session:
        for statement in statements:
            await session.execute(text(statement), {"id": batch_id})


async def test_waiting_says_why_and_until_when(
    online: Online, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(b"\n".join(line(f"r{n}") for n in range(100)))
    store = online.app.state.file_store
    arguments = ["submit", str(path), "--wait", "--base-url", f"{online.url}/v1"]
    arguments += ["--api-key", online.key]
    async with asyncio.TaskGroup() as tasks, online.client() as client:
        command: asyncio.Task[Result] = tasks.create_task(
            asyncio.to_thread(CliRunner().invoke, app, arguments)
        )
        while not (found := (await client.batches.list()).data):
            await asyncio.sleep(0.05)
        batch_id = found[0].id
        await looked_twice(online)
        await validate(database, store, batch_id)
        await looked_twice(online)
        await client.post(f"/batches/{batch_id}/pause", cast_to=Batch)
        await looked_twice(online)
        await client.post(f"/batches/{batch_id}/resume", cast_to=Batch)
        await change(database, batch_id, "DELETE FROM batch_events WHERE event = 'resumed'", *DONE)
        await looked_twice(online)
        await client.batches.cancel(batch_id)
        await finalize(database, store, batch_id)
    said = command.result()
    assert said.exit_code == 1, said.output
    lines = said.output.splitlines()
    assert "validating: 0 completed, 0 failed of 0; waiting: validating" in lines
    assert "in_progress: 0 completed, 0 failed of 100; waiting: dispatcher_starting" in lines
    assert "in_progress: 0 completed, 0 failed of 100; waiting: paused" in lines
    told = [one for one in lines if one.startswith("in_progress: 20 completed, 0 failed of 100; ")]
    assert told
    assert all("predicted end: 20" in one and ", between 20" in one for one in told)
    assert any(one.startswith("cancelled: 20 completed, 80 failed") for one in lines)
