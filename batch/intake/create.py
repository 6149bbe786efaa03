"""Stage 2 of a batch's life: it is created (rows B-01 to B-11).

Quick whatever the size of the file: its lines are read by the validation stage.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import InvalidInputFile
from api.batch_shapes import CreateBatch, may_be_id
from api.errors import InvalidRequest
from batch.intake.completion_window import seconds_of
from batch.intake.line import ENDPOINTS
from batch.intake.project_limits import add_batch
from batch.intake.upload import MAX_BATCH_FILE_BYTES, MAX_EXPIRY_S, MIN_EXPIRY_S
from batch.steer import check_priority, pause
from service import tracing
from store.models import Batch, File
from store.repositories import file as files
from store.repositories import webhook_endpoint

MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512


async def create(
    session: AsyncSession, project_id: str, request: CreateBatch, *, key_id: str | None = None
) -> Batch:
    """A new batch in `validating`; the caller enqueues its validation after the commit.

    The input file is locked against deletion until the transaction ends.

    Raises:
        InvalidRequest: A field has a value we do not serve; `param` names it.
        InvalidInputFile: The file is unknown, another project's, or not for batches.
        TooManyBatches: The project has as many as it may.
    """
    _check(request)
    file = await find_input(session, project_id, request.input_file_id or "")
    if request.coserve is not None:
        await _check_receivers(session, project_id, request.coserve.webhook_endpoints or ())
    options, expires_after = request.coserve, request.output_expires_after
    # Last: from here on until the commit the project's creations are one after the other.
    batch = await add_batch(
        session,
        project_id,
        key_id=key_id,
        endpoint=request.endpoint,
        completion_window=request.completion_window,
        completion_window_s=seconds_of(request.completion_window),
        input_file_id=file.id,
        metadata=request.metadata,
        output_expires_after_s=None if expires_after is None else expires_after.seconds,
        traceparent=tracing.traceparent(),
        priority=0 if options is None else options.priority,
        webhook_endpoints=None if options is None else options.webhook_endpoints,
    )
    if options is not None and options.reuse is not None:
        batch.reuse_s = seconds_of(options.reuse, param="coserve.reuse")
        await session.flush()
    if options is not None and options.paused:
        await pause(session, project_id, batch.id)
        await session.flush()
    return batch


async def find_input(session: AsyncSession, project_id: str, file_id: str) -> File:
    """The file of a batch to be, locked against deletion until the transaction ends.

    Raises:
        InvalidInputFile: It is unknown, another project's, or not for batches.
    """
    file = None
    if may_be_id(file_id):
        file = await files.get(session, project_id, file_id, lock=True)
    if file is None:
        raise InvalidInputFile(f"No such File object: {file_id[:64]}")
    if file.purpose != "batch":
        raise InvalidInputFile(
            f"The input file must have been uploaded with purpose 'batch', not '{file.purpose}'."
        )
    if file.size_bytes > MAX_BATCH_FILE_BYTES:
        raise InvalidInputFile(
            f"The input file has {file.size_bytes:,} bytes; the limit is {MAX_BATCH_FILE_BYTES:,}."
        )
    return file


def check_endpoint(endpoint: str) -> None:
    """Refuse what no batch may call.

    Raises:
        InvalidRequest: Naming `endpoint`.
    """
    if endpoint not in ENDPOINTS:
        raise InvalidRequest(
            f"The endpoint must be one of {', '.join(ENDPOINTS)}.", param="endpoint"
        )


async def _check_receivers(
    session: AsyncSession, project_id: str, endpoint_ids: Collection[str]
) -> None:
    if not endpoint_ids:
        return
    wanted = set(endpoint_ids)
    known = await webhook_endpoint.known(session, project_id, filter(may_be_id, wanted))
    if unknown := min(wanted - known, default=None):
        raise InvalidRequest(
            f"No webhook endpoint found with id '{unknown[:64]}'.",
            param="coserve.webhook_endpoints",
        )


def _check(request: CreateBatch) -> None:
    check_endpoint(request.endpoint)
    seconds_of(request.completion_window)
    expires_after = request.output_expires_after
    if expires_after is not None:
        if expires_after.anchor != "created_at":
            raise InvalidRequest(
                "The anchor must be 'created_at'.", param="output_expires_after.anchor"
            )
        if not MIN_EXPIRY_S <= expires_after.seconds <= MAX_EXPIRY_S:
            raise InvalidRequest(
                f"The seconds must lie between {MIN_EXPIRY_S} and {MAX_EXPIRY_S}.",
                param="output_expires_after.seconds",
            )
    if request.coserve is not None:
        check_priority(request.coserve.priority, param="coserve.priority")
        if request.coserve.reuse is not None:
            seconds_of(request.coserve.reuse, param="coserve.reuse")
    if request.metadata is not None:
        _check_metadata(request.metadata)


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_METADATA_PAIRS:
        raise InvalidRequest(
            f"There may be at most {MAX_METADATA_PAIRS} pairs of metadata.", param="metadata"
        )
    for key, value in metadata.items():
        if not 1 <= len(key) <= MAX_METADATA_KEY_CHARS or not _is_storable(key):
            raise InvalidRequest(
                f"A key of the metadata must have 1 to {MAX_METADATA_KEY_CHARS} characters, "
                "no NUL and no lone surrogate.",
                param="metadata",
            )
        if len(value) > MAX_METADATA_VALUE_CHARS or not _is_storable(value):
            raise InvalidRequest(
                f"A value of the metadata may have at most {MAX_METADATA_VALUE_CHARS} "
                "characters, no NUL and no lone surrogate.",
                param="metadata",
            )


def _is_storable(text: str) -> bool:
    """Whether the database can hold it (row Z-06)."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
