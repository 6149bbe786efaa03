"""Stage 1 of a batch's life: a file arrives (rows F-01 to F-13).

The form's fields may come in any order: the file is stored under its id while it arrives, and is
taken away again if what follows makes it unacceptable. Only a complete, durable file gets a row.
It is announced before its first byte (`batch.intake.arrivals`): whatever is lost on the way, no
row is without bytes, and no bytes stay without a row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from sqlalchemy import func
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import FileTooLarge, InvalidUpload
from api.refused_fields import unknown_field
from batch.files import FileStore, StoredObject
from batch.intake.arrivals import Arrivals, discard
from batch.intake.check import MAX_FILE_BYTES
from batch.intake.project_limits import check_storage
from store.models import File
from store.models.file import FILE_PURPOSES
from store.repositories import arrival as arrivals
from store.repositories import file as files
from store.types import new_id

UPLOAD_PURPOSES: Final = tuple(name for name in FILE_PURPOSES if name != "batch_output")
MAX_BATCH_FILE_BYTES: Final = MAX_FILE_BYTES
MAX_OTHER_FILE_BYTES: Final = 512 * 1024 * 1024
MAX_FORM_OVERHEAD_BYTES: Final = 1024 * 1024
"""Room for boundaries and fields, when a declared length is judged before the form is read."""

MIN_EXPIRY_S: Final = 3600
MAX_EXPIRY_S: Final = 30 * 86400
BATCH_FILE_EXPIRY_S: Final = 30 * 86400

_ANCHOR: Final = "expires_after[anchor]"
_SECONDS: Final = "expires_after[seconds]"
_FIELDS: Final = ("purpose", _ANCHOR, _SECONDS)


class UploadPart(Protocol):
    """One part of the form that carries an upload."""

    @property
    def name(self) -> str:
        """The name of the form's field."""
        ...

    @property
    def filename(self) -> str | None:
        """The name of the sender's file; None for a plain field."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The part's bytes as they arrive; can be read once."""
        ...

    async def text(self) -> str:
        """The whole value of a short field."""
        ...


@dataclass(frozen=True)
class Upload:
    """A file that was stored, and what its row will say.

    Attributes:
        file_id: Public id and storage key.
        filename: As the sender named it.
        purpose: One of `UPLOAD_PURPOSES`.
        stored: Size and digest of the stored bytes.
        expires_after_s: Seconds from creation, or None for a file that stays.
    """

    file_id: str
    filename: str
    purpose: str
    stored: StoredObject
    expires_after_s: int | None


@dataclass
class _Form:
    """What was read of the form so far."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str = ""
    announced: bool = False
    stored: StoredObject | None = None


async def receive(
    parts: AsyncIterator[UploadPart], file_store: FileStore, known: Arrivals
) -> Upload:
    """Read the form and store its file.

    Raises:
        InvalidUpload: A field is missing or wrong; `param` names it.
        FileTooLarge: The file is over its purpose's limit; reading stopped there.
        StorageFull: No room. In each of these cases nothing of the file is kept.
    """
    file_id = new_id("file-")
    form = _Form()
    try:
        async for part in parts:
            if part.name == "file":
                if form.stored is not None:
                    raise InvalidUpload("The form has more than one file.", param="file")
                form.filename = part.filename or "upload"
                limit_bytes = max_file_bytes(form.fields.get("purpose"))
                chunks = _limited(part.chunks(), limit_bytes)
                await known.announce(file_id)
                form.announced = True
                form.stored = await file_store.put(file_id, chunks)
            else:
                if part.name not in _FIELDS:
                    raise unknown_field(part.name, ("file", *_FIELDS))
                if part.name in form.fields:
                    raise InvalidUpload("The form has this field twice.", param=part.name)
                form.fields[part.name] = await part.text()
                if part.name == "purpose":
                    check_purpose(form.fields["purpose"])
        return _accept(file_id, form)
    except BaseException:
        # Also when the caller went away: a file without a row would be lost space.
        if form.announced:
            await discard(file_store, known, file_id)
        raise


async def record(session: AsyncSession, upload: Upload, project_id: str) -> File:
    """Give a stored file its row; it is listed when the transaction commits.

    A transaction that fails without a word may have been committed: the bytes are not the
    caller's to remove, but left to `batch.intake.arrivals.collect_arrivals`.

    Raises:
        InvalidUpload: It took so long that its bytes were collected.
        StorageQuotaExceeded: The project's files would hold more than they may.
    """
    await check_storage(session, project_id, upload.stored.size_bytes)
    if not await arrivals.settle(session, upload.file_id):
        raise InvalidUpload("The upload took longer than a day.", param="file")
    expires_at = None
    if upload.expires_after_s is not None:
        # The clock that sets created_at, in the same statement: the two differ by exactly this.
        expires_at = func.statement_timestamp() + timedelta(seconds=upload.expires_after_s)
    return await files.add(
        session,
        File(
            id=upload.file_id,
            project_id=project_id,
            purpose=upload.purpose,
            filename=upload.filename,
            size_bytes=upload.stored.size_bytes,
            sha256=upload.stored.sha256,
            storage_key=upload.file_id,
            expires_at=expires_at,
        ),
    )


def max_file_bytes(purpose: str | None) -> int:
    """The limit for a purpose; the largest of all while the purpose is not known yet."""
    return MAX_BATCH_FILE_BYTES if purpose == "batch" else MAX_OTHER_FILE_BYTES


def read_expiry(purpose: str, anchor: str | None, seconds: str | None) -> int | None:
    """`expires_after` as seconds from creation (rows F-12, F-13).

    Raises:
        InvalidUpload: One without the other, another anchor, or seconds out of range.
    """
    if anchor is None and seconds is None:
        return BATCH_FILE_EXPIRY_S if purpose == "batch" else None
    if anchor is None or seconds is None:
        missing = _ANCHOR if anchor is None else _SECONDS
        raise InvalidUpload(f"Missing required parameter: '{missing}'.", param=missing)
    if anchor != "created_at":
        raise InvalidUpload("The anchor must be 'created_at'.", param=_ANCHOR)
    in_range = seconds.isascii() and seconds.isdigit() and len(seconds) <= 9
    if not in_range or not MIN_EXPIRY_S <= int(seconds) <= MAX_EXPIRY_S:
        raise InvalidUpload(
            f"The seconds must be a whole number from {MIN_EXPIRY_S} to {MAX_EXPIRY_S}.",
            param=_SECONDS,
        )
    return int(seconds)


def check_purpose(purpose: str) -> None:
    """Refuse a purpose that no upload has.

    Raises:
        InvalidUpload: Naming `purpose`.
    """
    if purpose not in UPLOAD_PURPOSES:
        raise InvalidUpload(
            f"The purpose must be one of {', '.join(UPLOAD_PURPOSES)}.", param="purpose"
        )


def _accept(file_id: str, form: _Form) -> Upload:
    if form.stored is None:
        raise InvalidUpload("Missing required parameter: 'file'.", param="file")
    purpose = form.fields.get("purpose")
    if purpose is None:
        raise InvalidUpload("Missing required parameter: 'purpose'.", param="purpose")
    if form.stored.size_bytes > max_file_bytes(purpose):
        raise FileTooLarge(max_file_bytes(purpose))
    expires_after_s = read_expiry(purpose, form.fields.get(_ANCHOR), form.fields.get(_SECONDS))
    return Upload(file_id, form.filename, purpose, form.stored, expires_after_s)


async def _limited(chunks: AsyncIterator[bytes], limit_bytes: int) -> AsyncIterator[bytes]:
    size_bytes = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise FileTooLarge(limit_bytes)
        yield chunk
