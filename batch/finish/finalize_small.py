"""Small batches are finalized together: files are written at once, one transaction lists them.

As in `batch/intake/validate_small.py`: whatever is unusual about a batch is left to a finalization
of its own (`batch/finish/finalize.py`). The files are those that it would write, under the same
ids and names, and as there they are whole before the transaction that lists them commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final

from api.batch_errors import StorageFull
from api.errors import ApiError
from batch.files import FileStore
from batch.files.parts import part_key
from batch.finish.finalize import IDLE_LIMIT_S, PART_BYTES, ending, produced_file, produced_file_id
from batch.states import BatchStatus
from batch.transition import move_all
from store.models import Batch, File, OutputPart
from store.repositories import batch as batches
from store.repositories import file as files
from store.repositories import result as results
from store.repositories import statements
from store.repositories.batch import Move
from store.repositories.result import Lines
from store.session import Database

WRITE_LIMIT_S: Final = 5.0
"""Nobody waits longer for the file of another."""


async def finalize_small(
    database: Database, file_store: FileStore, batch_ids: Collection[str]
) -> set[str]:
    """Complete batches in `finalizing` with few and short results.

    Returns:
        Those that are complete; the others are to be finalized one by one.
    """
    async with database.unit_of_work() as session:
        ours = await batches.try_exclusive(session, batch_ids, idle_limit_s=IDLE_LIMIT_S)
        ready = [
            batch
            for batch in await batches.find_all(session, ours)
            if batch.status == BatchStatus.FINALIZING and batch.response_id is None
        ]
        lines = await results.whole(session, [one.id for one in ready], max_bytes=PART_BYTES)
        now = await statements.now(session)
        found = await asyncio.gather(
            *(
                _write(file_store, batch, kind, lines[batch.id, succeeded])
                for batch in ready
                for kind, succeeded in (("output", True), ("error", False))
                if (batch.id, succeeded) in lines
            )
        )
        parts = {part.file_id: part for part in found if part is not None}
        moves: list[Move] = []
        listed: list[File] = []
        for batch in ready:
            if (new := _listed(batch, parts)) is not None:
                produced = {kind: produced_file(batch, kind, [part], now) for kind, part in new}
                listed += produced.values()
                moves.append(ending(batch, BatchStatus.COMPLETED, produced))
        await files.add_all(session, listed)
        moved = await move_all(session, moves)
        if len(moved) < len(moves):
            raise RuntimeError("a batch left `finalizing` while its finalization was held")
    return {batch.id for batch in moved}


def _listed(batch: Batch, parts: dict[str, OutputPart]) -> list[tuple[str, OutputPart]] | None:
    """The files of a batch that was written whole, by their kind."""
    wanted = {"output": batch.num_completed, "error": batch.num_failed}
    found = [
        (kind, parts[file_id])
        for kind in wanted
        if (file_id := produced_file_id(batch.id, kind)) in parts
    ]
    if {kind: part.num_lines for kind, part in found} != {k: n for k, n in wanted.items() if n}:
        return None
    return found


async def _write(file_store: FileStore, batch: Batch, kind: str, lines: Lines) -> OutputPart | None:
    file_id = produced_file_id(batch.id, kind)
    try:
        async with asyncio.timeout(WRITE_LIMIT_S):
            stored = await file_store.put(part_key(file_id, 1), _once(lines.data))
    except StorageFull:
        raise
    except (ApiError, OSError):  # a time-out is one, too
        return None
    return OutputPart(
        file_id=file_id, num_lines=lines.num, size_bytes=stored.size_bytes, sha256=stored.sha256
    )


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
