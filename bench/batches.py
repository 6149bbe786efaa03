"""Batches and their dispatchers without the service around them: on a database and a file store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncSession

from batch.files.local import LocalFileStore
from batch.intake.validate import validate
from batch.run.dispatch import Dispatcher, DispatchLimits
from batch.run.lease import acquire
from batch.states import BatchStatus
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from service.clock import SystemClock
from store.models import DEFAULT_PROJECT_ID, Batch, File
from store.repositories import batch as batches
from store.repositories import file as files
from store.session import Database
from tests.fakes.seams import MemoryQueue

LINE_BYTES = 2000


def line(number: int) -> bytes:
    """One request of `LINE_BYTES` to the fake engine, which answers with 32 tokens."""
    prompt = "fake:tokens=32 " + f"question {number} " * 200
    body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
    shape: dict[str, Any] = {
        "custom_id": f"request-{number}",
        "method": "POST",
        "url": CHAT_PATH,
        "body": body,
    }
    room = LINE_BYTES - len(orjson.dumps(shape)) + len(prompt)
    body["messages"][0]["content"] = prompt[:room]  # type: ignore[index]
    return orjson.dumps(shape)


async def record_batch(
    session: AsyncSession, file_id: str, *, size_bytes: int, sha256: str
) -> Batch:
    """A batch of the default project that nobody has validated, and its file of this size."""
    file = File(
        id=file_id,
        project_id=DEFAULT_PROJECT_ID,
        purpose="batch",
        filename="in.jsonl",
        size_bytes=size_bytes,
        sha256=sha256,
        storage_key=file_id,
    )
    await files.add(session, file)
    return await batches.add(
        session,
        project_id=DEFAULT_PROJECT_ID,
        key_id=None,
        endpoint=CHAT_PATH,
        completion_window="24h",
        completion_window_s=86400,
        input_file_id=file_id,
        metadata=None,
        output_expires_after_s=None,
    )


async def add_batch(database: Database, store: LocalFileStore, data: bytes, number: int) -> str:
    """A validated batch of these lines; its id.

    Raises:
        RuntimeError: The lines are no valid batch.
    """

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    key = f"file-{number}"
    stored = await store.put(key, chunks())
    async with database.unit_of_work() as session:
        batch = await record_batch(session, key, size_bytes=stored.size_bytes, sha256=stored.sha256)
    status = await validate(database, store, batch.id)
    if status is not BatchStatus.IN_PROGRESS:
        raise RuntimeError(f"the batch is {status}")
    return batch.id


async def dispatcher(
    client: HttpEngineClient,
    database: Database,
    store: LocalFileStore,
    *,
    limits: DispatchLimits | None = None,
    drain: asyncio.Event | None = None,
) -> Dispatcher:
    """The dispatcher of an engine, with its lease; it ends when idle, or once `drain` is set."""
    clock = SystemClock()
    lease = await acquire(client.url, database, clock)
    assert lease is not None
    return Dispatcher(
        lease,
        client,
        database,
        store,
        MemoryQueue(),
        clock,
        limits or DispatchLimits(),
        drain=drain or asyncio.Event(),
    )
