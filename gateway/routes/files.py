"""`/files`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from api.batch_errors import FileNotFound, FileTooLarge, InvalidUpload
from api.batch_shapes import FileDeleted, FileList, FileObject, may_be_id
from api.errors import ApiError
from api.json_output import dump
from batch.files import ByteRange, parts
from batch.files.parts import check_there, stream_file
from batch.finish import collect
from batch.intake import idempotency, upload
from batch.intake.arrivals import StoredArrivals, discard
from batch.intake.project_limits import check_storage
from gateway.dependencies import (
    ActorDep,
    DatabaseDep,
    FileStoreDep,
    PrincipalDep,
    ReadingsDep,
)
from gateway.http.error_handlers import noted_response
from gateway.http.multipart import MultipartForm
from gateway.http.ranges import content_disposition, read_range
from gateway.http.refusal import LingeringResponse
from gateway.http.streaming_list import ListResponse, dumped
from gateway.tenants.actor import Action
from store.models import File
from store.models.file import FILE_PURPOSES
from store.repositories import file as files
from store.repositories.file import FilePosition
from store.session import Database

router = APIRouter(tags=["files"])

PAGE_SLICE: Final = 100
"""Files that are read of the database at once."""

_UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "enum": list(upload.UPLOAD_PURPOSES)},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {"type": "integer"},
                    },
                }
            }
        },
    }
}


@router.post("/files", response_model=FileObject, openapi_extra=_UPLOAD_SCHEMA)
async def create_file(
    request: Request,
    principal: PrincipalDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> object:
    """Store an uploaded file. The body is read as it arrives, and only as far as it is allowed."""
    arrivals = StoredArrivals(database)
    try:
        key = idempotency.check_key(idempotency_key)
        _check_declared_length(request)
        async with database.unit_of_work() as session:
            # Before the body: who is over the limit already need not send it.
            await check_storage(session, principal.project_id, 1)
        form = MultipartForm(request.headers.get("content-type"), request.stream())
        received = await upload.receive(form.parts(), file_store, arrivals)
    except ClientDisconnect:
        raise InvalidUpload("The upload was interrupted.") from None
    except ApiError as refused:
        return LingeringResponse(noted_response(request, refused), request)
    try:
        async with database.unit_of_work() as session:
            file = await idempotency.record_file(session, received, principal.project_id, key=key)
    except ApiError:  # refused before the commit; of anything else nobody knows whether it is one
        await discard(file_store, arrivals, received.file_id)
        raise
    if file.id != received.file_id:
        await discard(file_store, arrivals, received.file_id)
    return FileObject.of(file)


@router.get("/files", response_model=FileList)
async def list_files(
    principal: PrincipalDep,
    readings: ReadingsDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> ListResponse:
    """A page of the project's files, by creation."""
    if purpose is not None and purpose not in FILE_PURPOSES:
        return ListResponse([], None, has_more=False)
    async with readings.snapshot() as session:
        position = None
        if after is not None:
            if may_be_id(after):
                position = await files.position(session, principal.project_id, after)
            if position is None:
                raise FileNotFound(after[:64], param="after")
        made: list[bytes] = []
        ids: list[str] = []
        has_more = True
        while has_more and len(made) < limit:
            # A few at a time: reading many holds up the loop as much as writing them.
            page = await files.page(
                session,
                principal.project_id,
                limit=min(PAGE_SLICE, limit - len(made)),
                newest_first=order == "desc",
                purpose=purpose,
                after=position,
            )
            made += await dumped(page.files, _dump)
            ids += [file.id for file in page.files]
            has_more = page.has_more
            if page.files:
                position = FilePosition(page.files[-1].created_at, page.files[-1].id)
            session.expunge_all()
    return ListResponse(made, (ids[0], ids[-1]) if ids else None, has_more=has_more)


def _dump(file: File) -> bytes:
    return dump(FileObject.of(file).model_dump())


@router.get("/files/{file_id}")
async def get_file(file_id: str, principal: PrincipalDep, database: DatabaseDep) -> FileObject:
    """One file's metadata."""
    return FileObject.of(await _find(database, principal.project_id, file_id))


@router.get("/files/{file_id}/content", response_class=StreamingResponse)
async def get_file_content(
    file_id: str,
    request: Request,
    principal: PrincipalDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
) -> StreamingResponse:
    """The file's bytes, or a range of them."""
    file = await _find(database, principal.project_id, file_id)
    size_bytes = file.size_bytes
    etag = f'"{file.sha256}"'
    wanted = read_range(
        request.headers.get("range"),
        size_bytes,
        if_range=request.headers.get("if-range"),
        etag=etag,
    )
    headers = {
        "accept-ranges": "bytes",
        "etag": etag,
        "content-disposition": content_disposition(file.filename),
        "x-content-type-options": "nosniff",
    }
    if wanted is not None:
        last = wanted.offset + wanted.length - 1
        headers["content-range"] = f"bytes {wanted.offset}-{last}/{size_bytes}"
    part = wanted or ByteRange(0, size_bytes)
    # Before the first byte is sent: a missing object must be an error, not a cut-off reply.
    await check_there(file_store, file, part)
    headers["content-length"] = str(part.length)
    return StreamingResponse(
        stream_file(file_store, file, part),
        status_code=200 if wanted is None else 206,
        headers=headers,
        media_type="application/octet-stream",
    )


@router.delete("/files/{file_id}")
async def delete_file(
    file_id: str,
    principal: PrincipalDep,
    actor: ActorDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
) -> FileDeleted:
    """Delete a file that no live batch reads."""
    if not may_be_id(file_id):
        raise FileNotFound(file_id[:64])
    async with database.unit_of_work() as session:
        file = await collect.delete_file(session, principal.project_id, file_id)
        await actor.record(
            session,
            Action.FILE_DELETED,
            file.id,
            project_id=file.project_id,
            detail={"data": {"filename": file.filename}},
        )
    await parts.delete_file(file_store, file)
    return FileDeleted(id=file.id)


def _check_declared_length(request: Request) -> None:
    declared = request.headers.get("content-length", "")
    limit_bytes = upload.MAX_OTHER_FILE_BYTES
    if declared.isdigit() and int(declared) > limit_bytes + upload.MAX_FORM_OVERHEAD_BYTES:
        raise FileTooLarge(limit_bytes)


async def _find(database: Database, project_id: str, file_id: str) -> File:
    file = None
    if may_be_id(file_id):
        async with database.unit_of_work() as session:
            file = await files.get(session, project_id, file_id)
    if file is None:
        raise FileNotFound(file_id[:64])
    return file
