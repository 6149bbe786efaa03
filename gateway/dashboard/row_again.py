"""One row of a batch is run again: its line becomes a file and a batch of its own.

A batch that was over stays so, and the new one is like any other: it is validated, counts against
the limits of the project that owns the row, and its page shows what came of it. Nobody is told of
its end: whoever asked looks at it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import PurePath
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from api.batch_errors import StoredObjectMissing
from api.batch_shapes import CreateBatch, CreateOptions
from api.errors import Conflict, NotFound
from batch.files import FileStore
from batch.intake.arrivals import StoredArrivals, discard
from batch.intake.create import create
from batch.intake.upload import BATCH_FILE_EXPIRY_S, Upload, record
from batch.queue import STAGES
from batch.states import TERMINAL_ROW
from gateway.dashboard.access import AdminDep, CheckedForm, ResourcesDep
from gateway.dashboard.navigation import go_to_batch
from gateway.dashboard.resources import Resources
from gateway.tenants.actor import Action, Actor
from store.models import Batch, File
from store.repositories import overview, row_browser
from store.repositories.overview import BatchOverview
from store.repositories.row_browser import RowDetail
from store.types import new_id

router = APIRouter(dependencies=[CheckedForm])

MAX_NAME_CHARS: Final = 100


@router.post("/batches/{batch_id}/rows/{line_no}/again")
async def run_again(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    batch_id: str,
    line_no: Annotated[int, Path(ge=1, le=2**31 - 1)],
) -> Response:
    """Run a row that has ended once more; leads to the new batch.

    Raises:
        NotFound: No such batch in the organisation, or no such row in it.
        Conflict: The row has not ended, or its input file is gone.
    """
    async with resources.database.snapshot() as work:
        found = await overview.one(work, admin.organization_id, batch_id[:64])
        if found is None:
            raise NotFound(f"No batch found with id '{batch_id[:64]}'.")
        row = await row_browser.one(work, found.batch, line_no)
        file = await overview.file_of(work, found.batch, found.batch.input_file_id)
    raw = await _read(resources.file_store, file, row, line_no)
    made = await _make(resources, admin.actor(request), found, line_no, raw)
    await resources.queue.wake(STAGES)
    return go_to_batch(request, made.id)


async def _read(files: FileStore, file: File | None, row: RowDetail | None, line_no: int) -> bytes:
    """The line of a row that can be run again."""
    if row is None:
        raise NotFound(f"This batch has no line {line_no:,}.")
    if row.status not in TERMINAL_ROW:
        raise Conflict(f"Line {line_no:,} has not ended.", current=row.status)
    gone = Conflict("The input file of this batch is gone.")
    if file is None:
        raise gone
    try:
        return await files.read_range(file.storage_key, row.offset_bytes, row.length_bytes)
    except StoredObjectMissing:
        raise gone from None


async def _make(
    resources: Resources, actor: Actor, found: BatchOverview, line_no: int, raw: bytes
) -> Batch:
    """A file of the one line, and a batch over it like the one that it is from."""
    batch = found.batch
    arrivals = StoredArrivals(resources.database)
    file_id = new_id("file-")
    await arrivals.announce(file_id)
    try:
        stored = await resources.file_store.put(file_id, _line(raw))
        name = f"{PurePath(found.input_name).stem[:MAX_NAME_CHARS]} line {line_no}.jsonl"
        upload = Upload(file_id, name, "batch", stored, BATCH_FILE_EXPIRY_S)
        async with resources.database.unit_of_work(actor=actor.named) as work:
            await record(work, upload, batch.project_id)
            wanted = CreateBatch(
                input_file_id=file_id,
                endpoint=batch.endpoint,
                completion_window=batch.completion_window,
                metadata=batch.batch_metadata,
                coserve=CreateOptions(priority=batch.priority, webhook_endpoints=[]),
            )
            made = await create(work, batch.project_id, wanted, key_id=batch.key_id)
            await actor.record(
                work,
                Action.BATCH_ROW_RETRIED,
                batch.id,
                project_id=batch.project_id,
                detail={"data": {"line": line_no, "new_batch_id": made.id}},
            )
    except Exception:
        # Without its row in the database the file is lost space.
        await discard(resources.file_store, arrivals, file_id)
        raise
    return made


async def _line(raw: bytes) -> AsyncIterator[bytes]:
    yield raw
