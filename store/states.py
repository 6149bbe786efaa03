"""Every status that is stored: the words. How one follows another stands in `batch/states.py`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class BatchStatus(StrEnum):
    """The eight statuses of the wire (row R-01)."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


TERMINAL_BATCH: Final = frozenset(
    {BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}
)
LIVE_STATUSES: Final = (
    BatchStatus.VALIDATING,
    BatchStatus.IN_PROGRESS,
    BatchStatus.FINALIZING,
    BatchStatus.CANCELLING,
)
"""In the order of a batch's life."""


class RowStatus(StrEnum):
    """Where one row of a batch stands."""

    PENDING = "pending"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class UploadStatus(StrEnum):
    """Where an upload in parts stands; `expired` is computed from its time and never stored."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


STORED_UPLOAD: Final = (UploadStatus.PENDING, UploadStatus.COMPLETED, UploadStatus.CANCELLED)


class DeliveryStatus(StrEnum):
    """Where the delivery of an event to a webhook endpoint stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
