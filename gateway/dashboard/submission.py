"""An admin submits a batch by upload."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.batch_errors import FileTooLarge, InvalidUpload
from api.batch_shapes import CreateBatch, CreateOptions
from api.errors import ApiError, InvalidRequest
from batch.intake.arrivals import StoredArrivals, discard
from batch.intake.create import check_endpoint, create
from batch.intake.upload import MAX_BATCH_FILE_BYTES, MAX_FORM_OVERHEAD_BYTES, receive, record
from batch.queue import STAGES
from gateway.batch_checks import dry_run
from gateway.dashboard.access import (
    CSRF_FIELD,
    CSRF_HEADER,
    AdminDep,
    CheckedForm,
    ResourcesDep,
    check_origin,
    check_token,
)
from gateway.dashboard.navigation import go_to_batch
from gateway.dashboard.pages import new_batch_page
from gateway.http.json_response import JsonResponse
from gateway.http.multipart import FormPart, MultipartForm
from gateway.http.refusal import LingeringResponse
from gateway.tenants.actor import Action

router = APIRouter()

FIELDS = frozenset({"endpoint", "completion_window", "priority", "metadata", "paused", "webhook"})
"""Ours, before the file; the others belong to the upload."""

NOBODY = "nobody"


@router.post("/batches")
async def submit(request: Request, resources: ResourcesDep, admin: AdminDep) -> Response:
    """Store the uploaded file and create a batch of it.

    The CSRF token comes before the file in the form (or in a header), so that nothing of a forged
    upload is read.
    """
    form = _Submission(request, resources, admin)
    arrivals = StoredArrivals(resources.database)
    try:
        check_origin(request)
        _check_length(request)
        multipart = MultipartForm(request.headers.get("content-type"), request.stream())
        upload = await receive(form.upload_parts(multipart), resources.file_store, arrivals)
        try:
            if upload.stored.size_bytes == 0:
                raise InvalidUpload(
                    "The file is empty. Choose a JSONL file with one request a line."
                )
            async with resources.database.unit_of_work(actor=admin.actor(request).named) as work:
                file = await record(work, upload, admin.key.project_id)
                wanted = form.wanted(file.id)
                batch = await create(work, admin.key.project_id, wanted, key_id=admin.key.id)
                await admin.actor(request).record(
                    work,
                    Action.BATCH_CREATED,
                    batch.id,
                    project_id=batch.project_id,
                    detail={"data": {"input_file_id": file.id, "filename": file.filename}},
                )
        except ApiError:  # refused before the commit: without its row the file is lost space
            await discard(resources.file_store, arrivals, upload.file_id)
            raise
    except ApiError as refused:
        page = await new_batch_page(
            request, resources, admin, error=refused.message, status=refused.status
        )
        return LingeringResponse(page, request)
    await resources.queue.wake(STAGES)
    return go_to_batch(request, batch.id)


@router.post("/batches/check", dependencies=[CheckedForm])
async def check(
    request: Request, resources: ResourcesDep, admin: AdminDep, endpoint: str
) -> Response:
    """Every error of the file that is the body, as the service would find them; nothing is kept.

    Raises:
        InvalidRequest: There is no such endpoint.
        FileTooLarge: The body is more than a file may have.
    """
    check_endpoint(endpoint)
    _check_length(request)
    found = await dry_run(resources.state, admin.key.project_id, endpoint, _content(request))
    return JsonResponse(found)


async def _content(request: Request) -> AsyncGenerator[bytes]:
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > MAX_BATCH_FILE_BYTES:
            raise FileTooLarge(MAX_BATCH_FILE_BYTES)
        yield chunk


class _Submission:
    """The submission form while it is read."""

    def __init__(self, request: Request, resources: ResourcesDep, admin: AdminDep) -> None:
        self._said: dict[str, str] = {}
        self._resources = resources
        self._session = admin.session
        self._token = request.headers.get(CSRF_HEADER)

    async def upload_parts(self, form: MultipartForm) -> AsyncIterator[FormPart]:
        """The parts that belong to the upload; our own fields are taken out on the way."""
        checked = False
        async for part in form.parts():
            if part.name == CSRF_FIELD and self._token is None:
                self._token = await part.text()
            if not checked:
                check_token(self._resources, self._session, self._token or "")
                checked = True
            if part.name in FIELDS:
                self._said[part.name] = await part.text()
            elif part.name != CSRF_FIELD:
                yield part

    def wanted(self, file_id: str) -> CreateBatch:
        """The batch that the form asks for.

        Raises:
            InvalidRequest: A field cannot be read; `create` judges what they say.
        """
        said = self._said
        try:
            priority = int(said.get("priority") or 0)
        except ValueError:
            raise InvalidRequest("The priority must be a whole number.", param="priority") from None
        return CreateBatch(
            input_file_id=file_id,
            endpoint=said.get("endpoint", ""),
            completion_window=said.get("completion_window") or "24h",
            metadata=_pairs(said.get("metadata", "")),
            coserve=CreateOptions(
                priority=priority,
                paused=bool(said.get("paused")),
                webhook_endpoints=_receivers(said.get("webhook", "")),
            ),
        )


def _receivers(choice: str) -> list[str] | None:
    """The endpoints to notify: all (None), none, or the one that was chosen."""
    return None if choice == "" else [] if choice == NOBODY else [choice]


def _pairs(text: str) -> dict[str, str] | None:
    pairs: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, sign, value = line.partition("=")
        if not sign:
            raise InvalidRequest(f"“{line[:64]}” is no KEY=VALUE.", param="metadata")
        pairs[key.strip()] = value.strip()
    return pairs or None


def _check_length(request: Request) -> None:
    declared = request.headers.get("content-length", "")
    limit = MAX_BATCH_FILE_BYTES + MAX_FORM_OVERHEAD_BYTES
    if declared.isdigit() and int(declared) > limit:
        raise FileTooLarge(MAX_BATCH_FILE_BYTES)
