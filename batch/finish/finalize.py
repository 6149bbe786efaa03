"""The last stage: rows are closed, the files are written, the batch reaches its end.

    finalizing                    ──► completed     every row has its answer
    cancelling                    ──► cancelled     pending rows closed, rows in flight awaited
    in_progress, window ended     ──► expired       likewise

Idempotent: it may run twice, at the same time, or be cut off anywhere. Files have ids that follow
from the batch's, their rows appear in the transaction that ends the batch, and their contents
follow from results that no longer change.

Files are written in parts of `PART_BYTES`, and a part that is stored is noted in a transaction of
its own: a run that is cut off costs one part, and the next one goes on behind it. A run lasts
`RUN_S`, so that long files of one batch do not keep others waiting; nothing limits how many runs
there are.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from batch import background
from batch.files import FileStore
from batch.files.parts import part_key
from batch.finish.output import cancelled_line, expired_line
from batch.states import TERMINAL_BATCH, BatchStatus, RowStatus
from batch.transition import all_rows_closed, move_all
from service.clock import Clock, SystemClock
from store.models import Batch, File, OutputPart
from store.repositories import batch as batches
from store.repositories import file as files
from store.repositories import output_part as output_parts
from store.repositories import result as results
from store.repositories import statements
from store.repositories.batch import Move
from store.repositories.result import Lines, NewResult
from store.session import Database

# --- Closing rows that will never run: those still pending when a batch is cancelled or expires.


CLOSE_ROWS = 1000


async def close_pending(database: Database, batch_id: str, status: RowStatus) -> int:
    """Give every pending row of the batch its error line; how many there were.

    One short transaction per `CLOSE_ROWS` rows, so that results of rows in flight are not kept
    waiting. The batch must be in a state in which no row of it is claimed any more.
    """
    line_of = cancelled_line if status is RowStatus.CANCELLED else expired_line
    num_closed = 0
    while True:
        async with database.unit_of_work() as session:
            taken = await results.take_pending(session, batch_id, limit=CLOSE_ROWS)
            if not taken:
                return num_closed
            lines = [
                NewResult(row_id, batch_id, status, line_of(row_id, custom_id))
                for row_id, custom_id in taken
            ]
            written = await results.write(session, lines, dispatcher_id=None)
        num_closed += written.num_written


logger = logging.getLogger(__name__)

IDLE_LIMIT_S: Final = 60.0
"""A finalization that reads nothing for this long is given up by the server."""

PART_BYTES: Final = 8 * 1024**2
"""No line is added to a part of so many bytes: a store that takes a tenth of a MiB a second is
fast enough for the time a stage has."""

RUN_S: Final = 10.0
"""No part is begun after so long: whoever else waits for a stage comes first."""

DEFAULT_EXPIRY: Final = timedelta(days=30)
"""How long output files live where the batch does not say (row R-24)."""


async def finalize(
    database: Database,
    file_store: FileStore,
    batch_id: str,
    *,
    clock: Clock | None = None,
    part_bytes: int = PART_BYTES,
) -> BatchStatus | None:
    """Bring the batch as far as it can go in one run.

    Returns:
        The terminal status it was moved to. Or the one it has while its files are written in
        part: it wants another run. Or none where it is not its turn: rows are still in flight,
        another finalization has it, or it has ended already.
    """
    clock = clock or SystemClock()
    until_s = clock.monotonic() + RUN_S
    async with database.unit_of_work() as session:
        closing = await _closing(session, batch_id)
    if closing is not None:
        await close_pending(database, batch_id, closing)
    try:
        while True:
            async with database.unit_of_work() as session:
                if not await batches.try_exclusive(session, [batch_id], idle_limit_s=IDLE_LIMIT_S):
                    return None
                target = await _target(session, batch_id)
                if target is None:
                    return None
                writing = _Writing(session, file_store, part_bytes)
                reached = await _deliver(writing, batch_id, target)
            if reached in TERMINAL_BATCH or clock.monotonic() >= until_s:
                return reached
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
        return RowStatus.EXPIRED if await batches.is_overdue(session, batch_id) else None
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
            return (await all_rows_closed(session, [batch_id])).get(batch_id)
    return None


async def _deliver(writing: _Writing, batch_id: str, target: BatchStatus) -> BatchStatus:
    """Write a part of each file that is not whole; end the batch once both are.

    Returns:
        Where the batch is now.
    """
    session = writing.session
    batch = await session.get_one(Batch, batch_id)
    if batch.response_id is not None:
        if not await background.deliver(session, batch, target):
            raise _Overtaken
        return target
    produced: dict[str, Sequence[OutputPart]] = {}
    for kind, num_lines in (("output", batch.num_completed), ("error", batch.num_failed)):
        if num_lines:  # no file rather than an empty one (row R-07)
            produced[kind] = await writing.go_on(batch.id, kind, num_lines)
    if sum(part.num_lines for parts in produced.values() for part in parts) < batch.num_total:
        return BatchStatus(batch.status)
    now = await statements.now(session)
    listed = {kind: produced_file(batch, kind, parts, now) for kind, parts in produced.items()}
    await files.add_all(session, list(listed.values()))
    await output_parts.forget(session, batch.id)
    if not await move_all(session, [ending(batch, target, listed)]):
        raise _Overtaken
    return target


def ending(batch: Batch, target: BatchStatus, listed: Mapping[str, File]) -> Move:
    """The end of a batch, whose files are there now."""
    return Move(
        batch.id,
        target,
        {f"{kind}_file_id": file.id for kind, file in listed.items()},
        {
            "num_completed": batch.num_completed,
            "num_failed": batch.num_failed - batch.num_stopped,
            **({"num_stopped": batch.num_stopped} if batch.num_stopped else {}),
        },
    )


def produced_file(batch: Batch, kind: str, parts: Sequence[OutputPart], now: datetime) -> File:
    """The record of a file that is whole."""
    expiry = (
        DEFAULT_EXPIRY
        if batch.output_expires_after_s is None
        else timedelta(seconds=batch.output_expires_after_s)
    )
    file_id = produced_file_id(batch.id, kind)
    return File(
        id=file_id,
        project_id=batch.project_id,
        purpose="batch_output",
        filename=f"{batch.id}_{kind}.jsonl",
        size_bytes=sum(part.size_bytes for part in parts),
        sha256=_digest(parts),
        storage_key=file_id,
        part_bytes=[part.size_bytes for part in parts] if len(parts) > 1 else None,
        expires_at=now + expiry,
    )


def produced_file_id(batch_id: str, kind: str) -> str:
    """The id of a batch's output or error file: the same every time it is written."""
    return "file-" + hashlib.sha256(f"{batch_id}/{kind}".encode()).hexdigest()[:24]


def _digest(parts: Sequence[OutputPart]) -> str:
    if len(parts) == 1:
        return parts[0].sha256
    return hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()


@dataclass(frozen=True)
class _Writing:
    """One transaction that brings the files of a batch forward."""

    session: AsyncSession
    file_store: FileStore
    part_bytes: int

    async def go_on(self, batch_id: str, kind: str, num_lines: int) -> Sequence[OutputPart]:
        """Store the next part of a file unless it is whole; the parts that are there then."""
        file_id = produced_file_id(batch_id, kind)
        parts = await output_parts.written(self.session, file_id)
        if sum(part.num_lines for part in parts) == num_lines:
            return parts
        seq = parts[-1].last_seq if parts else 0
        number = len(parts) + 1
        lines = results.lines(
            self.session,
            batch_id,
            succeeded=kind == "output",
            seq=seq,
            max_bytes=min(results.EXPORT_BYTES, self.part_bytes),
        )
        source = _Part(lines, self.part_bytes)
        stored = await self.file_store.put(part_key(file_id, number), source.chunks())
        part = OutputPart(
            file_id=file_id,
            number=number,
            batch_id=batch_id,
            last_seq=source.last_seq,
            num_lines=source.num_lines,
            size_bytes=stored.size_bytes,
            sha256=stored.sha256,
        )
        found = sum(one.num_lines for one in (*parts, part))
        if found > num_lines or part.num_lines == 0:
            raise RuntimeError(f"{file_id}: {found} lines, not {num_lines}")
        await output_parts.add(self.session, part)
        return [*parts, part]


class _Part:
    """The lines of one part, counted as they pass. They follow from where the part begins."""

    def __init__(self, lines: AsyncIterator[Lines], max_bytes: int) -> None:
        self.num_lines = 0
        self.last_seq = 0
        self._lines = lines
        self._max_bytes = max_bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        while num_bytes < self._max_bytes:
            chunk = await anext(self._lines, None)
            if chunk is None:
                return
            self.num_lines += chunk.num
            self.last_seq = chunk.last_seq
            num_bytes += len(chunk.data)
            yield chunk.data
