"""`/uploads`: files that arrive in parts."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect

from api.batch_errors import InvalidUpload, PartTooLarge, UploadNotFound
from api.batch_shapes import CompleteUpload, CreateUpload, UploadObject, UploadPartObject, may_be_id
from api.errors import ApiError
from batch.intake import parted_upload
from batch.intake.arrivals import StoredArrivals
from batch.intake.upload import MAX_FORM_OVERHEAD_BYTES
from gateway.dependencies import DatabaseDep, FileStoreDep, PrincipalDep
from gateway.http.error_handlers import noted_response
from gateway.http.json_route import JsonRoute
from gateway.http.multipart import MultipartForm, clean_filename
from gateway.http.refusal import LingeringResponse

router = APIRouter(tags=["files"], route_class=JsonRoute)

_PART_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["data"],
                    "properties": {"data": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


@router.post("/uploads")
async def create_upload(
    body: CreateUpload, principal: PrincipalDep, database: DatabaseDep
) -> UploadObject:
    """Begin an upload in parts."""
    filename = clean_filename(body.filename.encode(errors="replace"))
    async with database.unit_of_work() as session:
        upload = await parted_upload.begin(session, principal.project_id, body, filename)
    return UploadObject.of(upload)


@router.post(
    "/uploads/{upload_id}/parts", response_model=UploadPartObject, openapi_extra=_PART_SCHEMA
)
async def add_part(
    upload_id: str,
    request: Request,
    principal: PrincipalDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
) -> object:
    """Store one part; parts may come in any order and at once."""
    try:
        _check_id(upload_id)
        _check_declared_length(request)
        async with database.unit_of_work() as session:
            upload = await parted_upload.find_open(session, principal.project_id, upload_id)
        form = MultipartForm(request.headers.get("content-type"), request.stream())
        known = StoredArrivals(database)
        part = await parted_upload.receive_part(form.parts(), database, file_store, known, upload)
    except ClientDisconnect:
        raise InvalidUpload("The upload was interrupted.") from None
    except ApiError as refused:
        return LingeringResponse(noted_response(request, refused), request)
    return UploadPartObject.of(part)


@router.post("/uploads/{upload_id}/complete")
async def complete_upload(
    upload_id: str,
    body: CompleteUpload,
    principal: PrincipalDep,
    database: DatabaseDep,
    file_store: FileStoreDep,
) -> UploadObject:
    """Put the parts together, in the order of the body; the same twice is once."""
    _check_id(upload_id)
    known = StoredArrivals(database)
    upload, file = await parted_upload.complete(
        database, file_store, known, principal.project_id, upload_id, body
    )
    await parted_upload.collect_parts(database, file_store, upload_id=upload_id)
    return UploadObject.of(upload, file)


@router.post("/uploads/{upload_id}/cancel")
async def cancel_upload(
    upload_id: str, principal: PrincipalDep, database: DatabaseDep, file_store: FileStoreDep
) -> UploadObject:
    """Give an upload up; its parts go."""
    _check_id(upload_id)
    async with database.unit_of_work() as session:
        upload = await parted_upload.cancel(session, principal.project_id, upload_id)
    await parted_upload.collect_parts(database, file_store, upload_id=upload_id)
    return UploadObject.of(upload)


def _check_id(upload_id: str) -> None:
    if not may_be_id(upload_id):
        raise UploadNotFound(upload_id[:64])


def _check_declared_length(request: Request) -> None:
    declared = request.headers.get("content-length", "")
    limit_bytes = parted_upload.MAX_PART_BYTES
    if declared.isdigit() and int(declared) > limit_bytes + MAX_FORM_OVERHEAD_BYTES:
        raise PartTooLarge(f"A part may have at most {limit_bytes:,} bytes.")
