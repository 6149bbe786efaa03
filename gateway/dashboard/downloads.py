"""A batch's files, streamed from the file store."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from api.errors import NotFound
from batch.files import ByteRange
from batch.files.parts import check_there, stream_file
from gateway.dashboard.access import OperatorDep, ResourcesDep
from gateway.tenants.actor import Action
from store.models import Batch
from store.repositories import overview

router = APIRouter()

KINDS = ("input", "output", "error")


@router.get("/batches/{batch_id}/files/{kind}")
async def download(
    request: Request, resources: ResourcesDep, admin: OperatorDep, batch_id: str, kind: str
) -> StreamingResponse:
    """The input, output or error file, as an attachment.

    It may be another project's, so that who took it is noted.
    """
    async with resources.database.unit_of_work() as work:
        found = await overview.one(work, admin.organization_id, batch_id[:64])
        file_id = _file_id(found.batch, kind) if found else None
        file = await overview.file_of(work, found.batch, file_id) if found and file_id else None
        if found is None or file is None:
            raise NotFound("This batch has no such file, or it was deleted.")
        await admin.actor(request).record(
            work,
            Action.BATCH_FILE_DOWNLOADED,
            found.batch.id,
            project_id=found.batch.project_id,
            detail={"data": {"file_id": file.id, "file": kind}},
        )
    whole = ByteRange(0, file.size_bytes)
    await check_there(resources.file_store, file, whole)
    return StreamingResponse(
        stream_file(resources.file_store, file, whole),
        media_type="application/jsonl",
        headers={
            "content-length": str(file.size_bytes),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename)}",
        },
    )


def _file_id(batch: Batch, kind: str) -> str | None:
    if kind not in KINDS:
        return None
    found: str | None = getattr(batch, f"{kind}_file_id")
    return found
