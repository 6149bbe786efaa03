"""A file that arrives in parts, each of its own request (rows F-32 to F-36).

    begin ──► parts, in any order and at once ──► complete: one file, listed
                        └──► cancelled, or past its time: collected

A part is announced, stored whole and listed, as a file is (`batch.upload`): it outlives a restart.
Completing copies the parts into one object, since a batch reads its lines by their place in one.
It may be repeated, also beside itself: the first that locks the upload makes the file.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import (
    FileTooLarge,
    InvalidUpload,
    PartTooLarge,
    StoredObjectMissing,
    UploadEnded,
    UploadNotFound,
)
from api.batch_shapes import CompleteUpload, CreateUpload
from api.errors import ApiError
from api.refused_fields import unknown_field
from batch.files import FileStore, StoredObject
from batch.intake.arrivals import Arrivals, discard
from batch.intake.project_limits import check_storage
from batch.intake.upload import (
    Upload,
    UploadPart,
    check_purpose,
    max_file_bytes,
    read_expiry,
    record,
)
from batch.removal import COLLECT_AT_ONCE, Budget, forget, in_steps, removed
from store.models import File, PartedUpload, UploadedPart
from store.repositories import arrival as arrivals
from store.repositories import file as files
from store.repositories import parted_upload as uploads
from store.repositories import statements
from store.session import Database
from store.states import UploadStatus
from store.types import new_id

logger = logging.getLogger(__name__)

LIFETIME_S: Final = 86400
"""From the beginning to the completion; a bad link may need more than OpenAI's hour."""

MAX_PART_BYTES: Final = 64 * 1024 * 1024
MAX_PARTS: Final = 1000
MAX_REPEATS: Final = 2
"""All parts together may hold so many times the file: a part whose answer was lost comes again."""

GRACE_S: Final = 3600.0
"""A completion that began in time has so long to read the parts."""


async def begin(
    session: AsyncSession, project_id: str, wanted: CreateUpload, filename: str
) -> PartedUpload:
    """Take note of a file that will come in parts.

    Args:
        session: An open transaction.
        project_id: Whose it will be.
        wanted: What was asked for.
        filename: Its name, fit to be shown.

    Raises:
        InvalidUpload: Naming the field.
        FileTooLarge: It would be over its purpose's limit.
        StorageQuotaExceeded: The project has no room for it.
    """
    check_purpose(wanted.purpose)
    if wanted.bytes < 1:
        raise InvalidUpload("The file must have at least one byte.", param="bytes")
    if wanted.bytes > max_file_bytes(wanted.purpose):
        raise FileTooLarge(max_file_bytes(wanted.purpose), param="bytes")
    expires = wanted.expires_after
    anchor, seconds = (expires.anchor, str(expires.seconds)) if expires else (None, None)
    expires_after_s = read_expiry(wanted.purpose, anchor, seconds)
    await check_storage(session, project_id, wanted.bytes)
    return await uploads.add(
        session,
        PartedUpload(
            id=new_id("upload_"),
            project_id=project_id,
            filename=filename,
            purpose=wanted.purpose,
            size_bytes=wanted.bytes,
            expires_after_s=expires_after_s,
            expires_at=func.statement_timestamp() + timedelta(seconds=LIFETIME_S),
        ),
    )


async def find_open(
    session: AsyncSession, project_id: str, upload_id: str, *, lock: bool = False
) -> PartedUpload:
    """An upload that still takes parts.

    Raises:
        UploadNotFound: There is none.
        UploadEnded: It is completed, cancelled or expired.
    """
    upload = await uploads.get(session, project_id, upload_id, lock=lock)
    if upload is None:
        raise UploadNotFound(upload_id)
    status = upload.status
    if status == UploadStatus.PENDING and upload.expires_at <= await statements.now(session):
        status = UploadStatus.EXPIRED
    if status != UploadStatus.PENDING:
        raise UploadEnded(upload_id, status)
    return upload


async def receive_part(
    parts: AsyncIterator[UploadPart],
    database: Database,
    file_store: FileStore,
    known: Arrivals,
    upload: PartedUpload,
) -> UploadedPart:
    """Read the form and store its part.

    Raises:
        InvalidUpload: The form has not exactly one part `data`.
        PartTooLarge: It is over its limit, or too much has come for this upload.
        UploadEnded: The upload ended meanwhile. In each of these cases nothing of it is kept.
    """
    part_id = new_id("part_")
    size_bytes: int | None = None
    announced = False
    unknown: list[str] = []
    try:
        async for part in parts:
            if part.name != "data":
                unknown.append(part.name)
                continue
            if announced:
                raise InvalidUpload("The form has more than one part.", param="data")
            await known.announce(part_id)
            announced = True
            size_bytes = (await file_store.put(part_id, _limited(part.chunks()))).size_bytes
        if size_bytes is None:
            raise InvalidUpload("Missing required parameter: 'data'.", param="data")
        if unknown:
            raise unknown_field(unknown[0], ("data",))
    except BaseException:
        if announced:
            await discard(file_store, known, part_id)
        raise
    try:
        async with database.unit_of_work() as session:
            return await _list_part(session, upload, part_id, size_bytes)
    except ApiError:  # before the commit; of anything else nobody knows whether it is listed
        await discard(file_store, known, part_id)
        raise


async def _list_part(
    session: AsyncSession, upload: PartedUpload, part_id: str, size_bytes: int
) -> UploadedPart:
    await find_open(session, upload.project_id, upload.id, lock=True)
    sizes = await uploads.part_sizes(session, upload.id)
    if len(sizes) >= MAX_PARTS:
        raise PartTooLarge(f"An upload may have at most {MAX_PARTS:,} parts.")
    if sum(sizes.values()) + size_bytes > MAX_REPEATS * upload.size_bytes:
        raise PartTooLarge(
            f"The parts of this upload may hold {MAX_REPEATS} times its {upload.size_bytes:,} "
            "bytes, not more."
        )
    await check_storage(session, upload.project_id, size_bytes)
    if not await arrivals.settle(session, part_id):
        raise InvalidUpload("The part took longer than a day.", param="data")
    return await uploads.add_part(session, upload.id, part_id, size_bytes)


async def complete(
    database: Database,
    file_store: FileStore,
    known: Arrivals,
    project_id: str,
    upload_id: str,
    wanted: CompleteUpload,
) -> tuple[PartedUpload, File | None]:
    """Put the parts together; the upload, and its file unless that was deleted since.

    Raises:
        UploadNotFound: There is none.
        UploadEnded: It is cancelled, expired, or was completed with other parts.
        InvalidUpload: The parts are not this upload's, or do not add up to its size or digest.
    """
    async with database.unit_of_work() as session:
        done = await _completed(session, project_id, upload_id, wanted)
        if done is not None:
            return done
        upload = await find_open(session, project_id, upload_id)
        _check_parts(upload, await uploads.part_sizes(session, upload_id), wanted.part_ids)
    file_id = new_id("file-")
    await known.announce(file_id)
    try:
        stored = await _put_together(file_store, file_id, wanted)
    except BaseException as error:
        await discard(file_store, known, file_id)
        if isinstance(error, StoredObjectMissing):
            # Another completion may have been quicker, and its parts are collected.
            async with database.unit_of_work() as session:
                done = await _completed(session, project_id, upload_id, wanted)
            if done is not None:
                return done
        raise
    try:
        async with database.unit_of_work() as session:
            made = await _become(session, project_id, upload_id, wanted, file_id, stored)
    except ApiError:  # before the commit; of anything else nobody knows whether it is listed
        await discard(file_store, known, file_id)
        raise
    if made[0].file_id != file_id:
        await discard(file_store, known, file_id)
    return made


async def _put_together(
    file_store: FileStore, file_id: str, wanted: CompleteUpload
) -> StoredObject:
    digest = hashlib.md5(usedforsecurity=False)

    async def whole() -> AsyncIterator[bytes]:
        for part_id in wanted.part_ids:
            async with aclosing(file_store.stream(part_id)) as chunks:
                async for chunk in chunks:
                    if wanted.md5 is not None:
                        digest.update(chunk)
                    yield chunk

    stored = await file_store.put(file_id, whole())
    if wanted.md5 is not None and wanted.md5.lower() != digest.hexdigest():
        raise InvalidUpload("The parts do not have this digest.", param="md5")
    return stored


async def _become(
    session: AsyncSession,
    project_id: str,
    upload_id: str,
    wanted: CompleteUpload,
    file_id: str,
    stored: StoredObject,
) -> tuple[PartedUpload, File | None]:
    """Make the file of an upload, or find that another completion has."""
    await uploads.get(session, project_id, upload_id, lock=True)
    done = await _completed(session, project_id, upload_id, wanted)
    if done is not None:
        return done
    upload = await find_open(session, project_id, upload_id)
    # First this, so that its parts and the file they become do not count twice for the project.
    upload.status, upload.file_id, upload.part_ids = (
        UploadStatus.COMPLETED,
        file_id,
        wanted.part_ids,
    )
    await session.flush()
    become = Upload(file_id, upload.filename, upload.purpose, stored, upload.expires_after_s)
    return upload, await record(session, become, project_id)


async def _completed(
    session: AsyncSession, project_id: str, upload_id: str, wanted: CompleteUpload
) -> tuple[PartedUpload, File | None] | None:
    """What the same completion made before, if it did."""
    upload = await uploads.get(session, project_id, upload_id)
    if (
        upload is None
        or upload.status != UploadStatus.COMPLETED
        or upload.part_ids != wanted.part_ids
    ):
        return None
    return upload, await files.get(session, project_id, upload.file_id or "")


def _check_parts(upload: PartedUpload, sizes: dict[str, int], part_ids: Sequence[str]) -> None:
    unknown = next((part_id for part_id in part_ids if part_id not in sizes), None)
    if unknown is not None:
        raise InvalidUpload(f"This upload has no part '{unknown[:64]}'.", param="part_ids")
    if len(set(part_ids)) < len(part_ids):
        raise InvalidUpload("A part is named twice.", param="part_ids")
    size_bytes = sum(sizes[part_id] for part_id in part_ids)
    if size_bytes != upload.size_bytes:
        raise InvalidUpload(
            f"The parts have {size_bytes:,} bytes; the upload was to have {upload.size_bytes:,}.",
            param="part_ids",
        )


async def cancel(session: AsyncSession, project_id: str, upload_id: str) -> PartedUpload:
    """End an upload; cancelling twice is once.

    Raises:
        UploadNotFound: There is none.
        UploadEnded: It is completed or expired.
    """
    upload = await uploads.get(session, project_id, upload_id, lock=True)
    if upload is None or upload.status != UploadStatus.CANCELLED:
        upload = await find_open(session, project_id, upload_id, lock=True)
        upload.status = UploadStatus.CANCELLED
    return upload


async def collect_parts(
    database: Database,
    file_store: FileStore,
    budget: Budget | None = None,
    upload_id: str | None = None,
) -> int:
    """Remove parts that nobody reads any more, of one upload or of all; how many.

    Bytes first: a crash in between repeats the removal. One that cannot be removed stands back.
    """
    budget = budget or Budget.of()
    num_collected = 0
    async with database.unit_of_work() as session:
        began_at = await statements.now(session)

    async def step(failed_before: bool) -> int:
        nonlocal num_collected
        async with database.unit_of_work() as session:
            spent = await uploads.spent_parts(
                session,
                limit=COLLECT_AT_ONCE,
                grace_s=GRACE_S,
                upload_id=upload_id,
                failed_before=began_at if failed_before else None,
            )
            done = await removed([part.id for part in spent], file_store.delete)
            now = await statements.now(session)
            for part in spent:
                if part.id in done:
                    await uploads.forget_part(session, part)
                else:
                    part.removal_failed_at = now
        num_collected += len(done)
        return len(spent)

    await in_steps(step, budget)
    if upload_id is None:
        await forget(database, uploads.forget_past, budget)
    return num_collected


async def _limited(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size_bytes = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > MAX_PART_BYTES:
            raise PartTooLarge(f"A part may have at most {MAX_PART_BYTES:,} bytes.")
        yield chunk
