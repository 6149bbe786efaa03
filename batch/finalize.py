"""The last stage: rows are closed, the files are written, the batch reaches its end.

    finalizing                    ──► completed     every row has its answer
    cancelling                    ──► cancelled     pending rows closed, rows in flight awaited
    in_progress, window ended     ──► expired       likewise

Idempotent: it may run twice, at the same time, or be cut off anywhere. Files have ids that follow
from the batch's, their rows appear in the transaction that ends the batch, and their contents
follow from results that no longer change; so a second run writes the same or finds it done.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from batch.close_rows import close_pending
from batch.files import FileStore, StoredObject
from batch.states import BatchStatus, RowStatus
from batch.transition import all_rows_closed, move
from store.models import Batch, File
from store.repositories import batch as batches
from store.repositories import file as files
from store.repositories import result as results
from store.session import Database

logger = logging.getLogger(__name__)

IDLE_LIMIT_S: Final = 60.0
"""A finalization that reads nothing for this long is given up by the server."""

DEFAULT_EXPIRY: Final = timedelta(days=30)
"""How long output files live where the batch does not say (contract row R-24)."""


async def finalize(database: Database, file_store: FileStore, batch_id: str) -> BatchStatus | None:
    """Bring the batch as far as it can go now.

    Returns:
        The status it was moved to, or none where it is not its turn: rows are still in flight,
        another finalization has it, or it has ended already.
    """
    async with database.unit_of_work() as session:
        closing = await _closing(session, batch_id)
    if closing is not None:
        await close_pending(database, batch_id, closing)
    try:
        async with database.unit_of_work() as session:
            if not await batches.try_exclusive(session, batch_id, idle_limit_s=IDLE_LIMIT_S):
                return None
            target = await _target(session, batch_id)
            return await _deliver(session, file_store, batch_id, target) if target else None
    except _Overtaken:
        logger.info("finalization of %s was overtaken", batch_id)
        return None


class _Overtaken(Exception):
    """The batch was cancelled while its files were written: nothing of this run may stay."""


async def _closing(session: AsyncSession, batch_id: str) -> RowStatus | None:
    """What the batch's pending rows end in, if they will never run."""
    batch = await batches.find(session, batch_id)
    if batch is not None and batch.status == BatchStatus.CANCELLING:
        return RowStatus.CANCELLED
    if batch is not None and batch.status == BatchStatus.IN_PROGRESS:
        return RowStatus.EXPIRED if await batches.is_over_window(session, batch_id) else None
    return None


async def _target(session: AsyncSession, batch_id: str) -> BatchStatus | None:
    """Where the batch ends, once all its rows are closed."""
    batch = await batches.find(session, batch_id)
    if batch is None or batch.num_completed + batch.num_failed < batch.num_total:
        return None  # in flight: the dispatcher asks again when it has closed the last one
    match BatchStatus(batch.status):
        case BatchStatus.FINALIZING:
            return BatchStatus.COMPLETED
        case BatchStatus.CANCELLING:
            return BatchStatus.CANCELLED
        case BatchStatus.IN_PROGRESS:
            return await all_rows_closed(session, batch_id)
    return None


async def _deliver(
    session: AsyncSession, file_store: FileStore, batch_id: str, target: BatchStatus
) -> BatchStatus:
    batch = await session.get_one(Batch, batch_id)
    created_at = await files.now(session)
    expiry = (
        DEFAULT_EXPIRY
        if batch.output_expires_after_s is None
        else timedelta(seconds=batch.output_expires_after_s)
    )
    values: dict[str, object] = {}
    for column, kind, succeeded, num_lines in (
        ("output_file_id", "output", True, batch.num_completed),
        ("error_file_id", "error", False, batch.num_failed),
    ):
        if num_lines == 0:
            continue  # no file rather than an empty one (contract row R-07)
        file_id = produced_file_id(batch.id, kind)
        lines = results.lines(session, batch.id, succeeded=succeeded)
        counted = _Counted(lines)
        stored: StoredObject = await file_store.put(file_id, counted.chunks())
        if counted.num_lines != num_lines:
            raise RuntimeError(f"{batch.id}: {counted.num_lines} {kind} lines, not {num_lines}")
        await files.add(
            session,
            File(
                id=file_id,
                project_id=batch.project_id,
                purpose="batch_output",
                filename=f"{batch.id}_{kind}.jsonl",
                size_bytes=stored.size_bytes,
                sha256=stored.sha256,
                storage_key=file_id,
                expires_at=created_at + expiry,
            ),
        )
        values[column] = file_id
    detail = {
        "num_completed": batch.num_completed,
        "num_failed": batch.num_failed - batch.num_stopped,
        **({"num_stopped": batch.num_stopped} if batch.num_stopped else {}),
    }
    moved = await move(session, batch.id, target, values=values, detail=detail)
    if moved is None:
        raise _Overtaken
    logger.info("%s is %s: %s", batch.id, target, detail)
    return target


def produced_file_id(batch_id: str, kind: str) -> str:
    """The id of a batch's output or error file: the same every time it is written."""
    return "file-" + hashlib.sha256(f"{batch_id}/{kind}".encode()).hexdigest()[:24]


class _Counted:
    """Counts the lines that pass through."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.num_lines = 0
        self._chunks = chunks

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self.num_lines += chunk.count(b"\n")
            yield chunk
