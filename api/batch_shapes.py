"""Wire shapes of files and batches.

A Batch carries every key, null where unset, as drop-in clients read the keys; a File leaves
`expires_at` out where it never expires.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

if TYPE_CHECKING:
    from store.models import Batch, File, PartedUpload, UploadedPart

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def may_be_id(text: str) -> bool:
    """Whether any of our ids could look like this; anything else is unknown without a query."""
    return _ID.fullmatch(text) is not None


def unix_s(instant: datetime | None) -> int | None:
    """An instant as the wire has it: whole seconds (row B-10)."""
    return None if instant is None else int(instant.timestamp())


class FileObject(BaseModel):
    """One file (rows F-03 to F-05)."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    expires_at: int | None = None

    @classmethod
    def of(cls, file: File) -> Self:
        """The wire shape of a row."""
        return cls(
            id=file.id,
            bytes=file.size_bytes,
            created_at=int(file.created_at.timestamp()),
            filename=file.filename,
            purpose=file.purpose,
            expires_at=unix_s(file.expires_at),
        )

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shape: dict[str, Any] = handler(self)
        if shape["expires_at"] is None:
            del shape["expires_at"]
        return shape


class FileList(BaseModel):
    """A page of files; all five keys always (row F-14)."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, files: Sequence[File], *, has_more: bool) -> Self:
        """The wire shape of a page of rows."""
        return cls(
            data=[FileObject.of(file) for file in files],
            first_id=files[0].id if files else None,
            last_id=files[-1].id if files else None,
            has_more=has_more,
        )


class FileDeleted(BaseModel):
    """What is left of a deleted file (row F-26)."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


BODY = ConfigDict(strict=True, extra="forbid")
"""Of what clients send: no value is converted, and a key that nobody knows is refused (T-28)."""


class ExpiresAfter(BaseModel):
    """When an output file expires, counted from its own creation (row B-07)."""

    model_config = BODY

    anchor: str
    seconds: int


class CreateUpload(BaseModel):
    """The body of `POST /uploads` (row F-32); `mime_type` is read and not kept."""

    model_config = BODY

    filename: str
    purpose: str
    bytes: int
    mime_type: str
    expires_after: ExpiresAfter | None = None


class CompleteUpload(BaseModel):
    """The body of `POST /uploads/{upload_id}/complete` (row F-34)."""

    model_config = BODY

    part_ids: list[str]
    md5: str | None = None


class UploadObject(BaseModel):
    """One upload (row F-32); `file` is there once it is one."""

    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    expires_at: int
    file: FileObject | None = None

    @classmethod
    def of(cls, upload: PartedUpload, file: File | None = None) -> Self:
        """The wire shape of a row."""
        return cls(
            id=upload.id,
            bytes=upload.size_bytes,
            created_at=int(upload.created_at.timestamp()),
            filename=upload.filename,
            purpose=upload.purpose,
            status=upload.status,
            expires_at=int(upload.expires_at.timestamp()),
            file=None if file is None else FileObject.of(file),
        )


class UploadPartObject(BaseModel):
    """One part of an upload (row F-33)."""

    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: str

    @classmethod
    def of(cls, part: UploadedPart) -> Self:
        """The wire shape of a row."""
        return cls(
            id=part.id, created_at=int(part.created_at.timestamp()), upload_id=part.upload_id
        )


class CreateOptions(BaseModel):
    """The key `coserve` of a new batch: ours."""

    model_config = BODY

    priority: int = 0
    paused: bool = False
    webhook_endpoints: Annotated[list[str] | None, Field(max_length=100)] = None
    reuse: str | None = None


class CreateBatch(BaseModel):
    """The body of `POST /batches` (row B-01): over a file, or with its requests in it."""

    model_config = BODY

    input_file_id: str | None = None
    requests: list[Any] | None = None
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None
    coserve: CreateOptions | None = None


class CheckBatch(BaseModel):
    """The body of `POST /batches/check`."""

    model_config = BODY

    input_file_id: str
    endpoint: str


class ChangePriority(BaseModel):
    """The body of `POST /batches/{batch_id}/priority`."""

    model_config = BODY

    priority: int


class RequestCounts(BaseModel):
    """Rows of a batch by outcome; `completed + failed <= total` (row R-03)."""

    total: int
    completed: int
    failed: int


class BatchFault(BaseModel):
    """One validation error (row B-25)."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchFaults(BaseModel):
    """Every validation error up to the cap (row B-26)."""

    object: Literal["list"] = "list"
    data: list[BatchFault]


class BatchAmounts(BaseModel):
    """What a batch is, or would be, in amounts.

    Attributes:
        rows: Requests.
        distinct_rows: Those that an engine is asked; the others repeat one of them.
        prompt_tokens: Of all rows.
        shared_prompt_tokens: Those of them that need not be computed again.
        answer_tokens: Of all rows; null where the project has no batch to expect it from.
    """

    rows: int
    distinct_rows: int
    prompt_tokens: int
    shared_prompt_tokens: int
    answer_tokens: int | None


class BatchQuote(BatchAmounts):
    """What a file would come to, before it runs.

    Attributes:
        finish_range: Unix seconds, the earliest and the latest; null before anything was measured.
        price: At the operator's price for a million tokens; null where none is set.
    """

    finish_range: tuple[int, int] | None
    price: str | None


class BatchReceipt(BatchAmounts):
    """What a batch came to, in the lines of its quote.

    Attributes:
        finished_at: Unix seconds.
    """

    finished_at: int


class BatchCheck(BaseModel):
    """What a batch over a file would come to; `quote` is null where the file has errors."""

    object: Literal["batch.check"] = "batch.check"
    input_file_id: str
    endpoint: str
    valid: bool
    num_lines: int
    num_bytes: int
    model: str | None
    errors: BatchFaults | None
    quote: BatchQuote | None


class InputTokenDetails(BaseModel):
    """Part of `BatchUsage`."""

    cached_tokens: int


class OutputTokenDetails(BaseModel):
    """Part of `BatchUsage`."""

    reasoning_tokens: int


class BatchUsage(BaseModel):
    """Tokens summed over the rows answered so far (row R-16)."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails
    total_tokens: int


class WaitingReason(StrEnum):
    """Why no line of a live batch is being finished; the first that holds."""

    VALIDATING = "validating"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"
    AT_ENGINE = "at_engine"
    PAUSED = "paused"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    BACKING_OFF = "backing_off"
    DISPATCHER_STARTING = "dispatcher_starting"
    QUEUED = "queued"


class RowsAtEngines(BaseModel):
    """Rows of a batch that are with engines.

    Attributes:
        rows: How many, as the database knows it.
        decoding: Of them those that get tokens or whose prompt is read; null where no engine says
            it, like the next two.
        parked: Left out of the newest step, with their KV kept.
        queued: Waiting there, or on their way.
    """

    rows: int
    decoding: int | None = None
    parked: int | None = None
    queued: int | None = None


class BatchExtension(BaseModel):
    """The `coserve` object of a batch; every key is always there.

    Attributes:
        input_filename: What its input file was called when it was uploaded.
        predicted_finish_at: Unix seconds.
        predicted_finish_range: Earliest and latest of what its pace over longer and shorter
            stretches comes to, with a margin; null where it has no pace of its own.
        feasible: Whether that is inside the completion window; null where nothing is predicted.
        warning: Said to people where it is not.
        tokens_per_s: Prompt and completion tokens over the last results.
        rows_per_s: Lines over the last results.
        at_engine: What its rows do there; null unless it is `in_progress`.
        webhook_endpoints: Those that hear of its end; null: all of its project.
        waiting_reason: One of `WaitingReason`; null while lines are being finished, and at the end.
        receipt: What it came to; null before its end, and where it had no rows.
    """

    predicted_finish_at: int | None
    predicted_finish_range: tuple[int, int] | None = None
    feasible: bool | None
    warning: str | None
    tokens_per_s: float | None
    rows_per_s: float | None
    waiting_reason: WaitingReason | None
    paused: bool
    priority: int
    retry_of: str | None
    webhook_endpoints: list[str] | None = None
    at_engine: RowsAtEngines | None = None
    input_filename: str | None = None
    receipt: BatchReceipt | None = None


class BatchObject(BaseModel):
    """One batch; every key is always there (rows B-08 to B-12, R-01 to R-05)."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    errors: BatchFaults | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage | None
    metadata: Annotated[dict[str, str] | None, Field(description="Echoed as given.")]
    coserve: Annotated[BatchExtension | None, Field(description="Ours, not OpenAI's.")] = None

    @classmethod
    def of(
        cls,
        batch: Batch,
        extension: BatchExtension | None = None,
        *,
        errors_apart: bool = False,
    ) -> Self:
        """The wire shape of a row; with `errors_apart` without its errors, read or not."""
        errors = None if errors_apart else batch.errors
        return cls(
            id=batch.id,
            endpoint=batch.endpoint,
            model=batch.model,
            errors=None
            if errors is None
            else BatchFaults(data=[BatchFault(**fault) for fault in errors]),
            input_file_id=batch.input_file_id,
            completion_window=batch.completion_window,
            status=batch.status,
            output_file_id=batch.output_file_id,
            error_file_id=batch.error_file_id,
            created_at=int(batch.created_at.timestamp()),
            in_progress_at=unix_s(batch.in_progress_at),
            expires_at=int(batch.expires_at.timestamp()),
            finalizing_at=unix_s(batch.finalizing_at),
            completed_at=unix_s(batch.completed_at),
            failed_at=unix_s(batch.failed_at),
            expired_at=unix_s(batch.expired_at),
            cancelling_at=unix_s(batch.cancelling_at),
            cancelled_at=unix_s(batch.cancelled_at),
            request_counts=RequestCounts(
                total=batch.num_total, completed=batch.num_completed, failed=batch.num_failed
            ),
            usage=_usage(batch),
            metadata=batch.batch_metadata,
            coserve=extension,
        )


class BatchList(BaseModel):
    """A page of batches; all five keys always (row R-27)."""

    object: Literal["list"] = "list"
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, batches: Sequence[BatchObject], *, has_more: bool) -> Self:
        """The wire shape of a page."""
        return cls(
            data=list(batches),
            first_id=batches[0].id if batches else None,
            last_id=batches[-1].id if batches else None,
            has_more=has_more,
        )


def _usage(batch: Batch) -> BatchUsage | None:
    """Null until the batch was validated: before that there is nothing to sum over."""
    if batch.in_progress_at is None:
        return None
    return BatchUsage(
        input_tokens=batch.prompt_tokens,
        input_tokens_details=InputTokenDetails(cached_tokens=batch.cached_tokens),
        output_tokens=batch.completion_tokens,
        output_tokens_details=OutputTokenDetails(reasoning_tokens=batch.reasoning_tokens),
        total_tokens=batch.prompt_tokens + batch.completion_tokens,
    )
