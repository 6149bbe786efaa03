"""Errors of the batch service.

ApiError (api.errors)
├─ InvalidRequest 400
│  ├─ InvalidUpload            the multipart form itself is wrong
│  └─ InvalidInputFile         a batch names a file that cannot be its input
├─ NotFound 404
│  ├─ FileNotFound
│  ├─ UploadNotFound
│  ├─ BatchNotFound
│  ├─ WebhookEndpointNotFound
│  └─ StoredObjectMissing      metadata without bytes: the file cannot be served
├─ Conflict 409
│  ├─ FileInUse                a live batch reads this file
│  ├─ UploadEnded              it is completed, cancelled or expired
│  └─ IdempotencyKeyReused     the key belongs to another request
├─ PayloadTooLarge 413
│  ├─ FileTooLarge
│  └─ PartTooLarge             a part of an upload, or all of its parts
├─ QuotaExceeded 429
│  ├─ TooManyBatches           the project has as many live batches, or made as many in an hour
│  ├─ TooManyResponses         it has as many unfinished background responses as it may
│  └─ StorageQuotaExceeded     its files hold as many bytes as they may
└─ Overloaded 503
   ├─ StorageFull              the disk or bucket takes no more bytes
   └─ StorageUnavailable       the bucket does not answer, or refuses us; a disk takes no writes
"""

from __future__ import annotations

from api.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
)


class InvalidUpload(InvalidRequest):
    """The upload is not a form this service can read; `param` names the field."""


class InvalidInputFile(InvalidRequest):
    """The input file of a new batch is unknown or of another purpose (row B-05)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="input_file_id")


class FileNotFound(NotFound):
    """No such file in the caller's project (rows F-21, T-29)."""

    def __init__(self, file_id: str, *, param: str = "id") -> None:
        super().__init__(f"No such File object: {file_id}", param=param)


class UploadNotFound(NotFound):
    """No such upload in the caller's project (row T-29)."""

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"No such Upload object: {upload_id}", param="upload_id")


class BatchNotFound(NotFound):
    """No such batch in the caller's project (rows R-25, T-29)."""

    def __init__(self, batch_id: str, *, param: str | None = "id") -> None:
        super().__init__(f"No batch found with id '{batch_id}'.", param=param)


class WebhookEndpointNotFound(NotFound):
    """No such webhook endpoint in the caller's project (row T-29)."""

    def __init__(self, endpoint_id: str, *, param: str = "id") -> None:
        super().__init__(f"No webhook endpoint found with id '{endpoint_id}'.", param=param)


class StoredObjectMissing(NotFound):
    """The file store has no bytes under a key, or fewer than were asked for."""

    default_code = "file_content_missing"

    def __init__(self, key: str) -> None:
        super().__init__(f"The content of {key} is gone.")


class FileInUse(Conflict):
    """A live batch reads this file, so it cannot be deleted (row F-27)."""

    def __init__(self, file_id: str, batch_id: str, status: str) -> None:
        super().__init__(
            f"File {file_id} is the input of batch {batch_id} with status '{status}'; "
            "cancel the batch or wait for its end before deleting the file.",
            current=status,
            param="id",
            code="file_in_use",
        )


class UploadEnded(Conflict):
    """The upload takes no parts any more and cannot end otherwise."""

    def __init__(self, upload_id: str, status: str) -> None:
        super().__init__(
            f"Upload {upload_id} is {status}; make a new one.",
            current=status,
            expected=("pending",),
            param="upload_id",
            code="upload_ended",
        )


class IdempotencyKeyReused(Conflict):
    """The Idempotency-Key was used for a different request (row T-30)."""

    def __init__(self) -> None:
        super().__init__(
            "This Idempotency-Key was used for a different request.",
            code="idempotency_key_reused",
        )


class FileTooLarge(PayloadTooLarge):
    """The file is over the limit of its purpose (rows F-09, F-10)."""

    default_code = "file_too_large"

    def __init__(self, limit_bytes: int, *, param: str = "file") -> None:
        super().__init__(
            f"The file is larger than the limit of {limit_bytes:,} bytes for this purpose.",
            param=param,
        )


class PartTooLarge(PayloadTooLarge):
    """A part is over its limit, or all parts hold more than their upload may."""

    default_code = "part_too_large"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="data")


class TooManyBatches(QuotaExceeded):
    """The project has as many batches as it may."""

    default_code = "batch_limit_exceeded"


class TooManyResponses(QuotaExceeded):
    """The project has as many unfinished background responses as it may."""

    default_code = "response_limit_exceeded"


class StorageQuotaExceeded(QuotaExceeded):
    """The project's files hold as much as they may."""

    default_code = "storage_limit_exceeded"


class StorageFull(Overloaded):
    """No room left for the file; nothing of it was kept."""

    default_code = "storage_full"

    def __init__(self) -> None:
        super().__init__("The file store is full; the file was not stored.")


class StorageUnavailable(Overloaded):
    """The file store cannot be used at the moment; the cause says why, to the log only."""

    default_code = "storage_unavailable"

    def __init__(self, why: str = "cannot be reached") -> None:
        super().__init__(f"The file store {why}. Please try again in a moment.")
