"""Batches, what happened to them, and the keys under which they were created."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Identity, Index, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.states import LIVE_STATUSES, BatchStatus
from store.types import CreatedAt, Instant, TextId

_ENDED_AT = "COALESCE(completed_at, failed_at, expired_at, cancelled_at)"

LIVE = one_of("status", LIVE_STATUSES)
"""SQL: whether a batch has not ended."""

STAGE_DUE_AT = """(
CASE
    WHEN status = 'in_progress' AND (paused_at IS NOT NULL \
OR (num_completed + num_failed) < num_total) THEN GREATEST(stage_at, expires_at)
    ELSE stage_at
END)"""
"""SQL: from when on a live batch wants a worker. Computed from the batch itself, so that nothing
has to be remembered when it changes: while rows are open, or it is paused, only its window's end
calls for one."""

OPEN = "status = 'in_progress' AND paused_at IS NULL AND num_completed + num_failed < num_total"
"""SQL: whether rows of a batch may be claimed until its window ends."""

ROWS_MODEL = "COALESCE(model, '')"
ROWS_DUE_AT = "COALESCE(wanted_at, expires_at)"
"""SQL: by when a batch's rows are wanted, for the order among all rows at an engine."""

_ROWS_DUE_AT_BEFORE = """(
CASE
    WHEN response_id IS NULL THEN expires_at
    ELSE created_at
END)"""
"""The same of the version before, for its index, which goes with the next release."""


class Batch(Base):
    """One batch and its counts.

    Invariants: `num_completed + num_failed <= num_total`, equal at the end; one `*_at` per status
    is set exactly when that status is entered; a terminal status never changes.
    """

    __tablename__ = "batches"
    __table_args__ = (
        CheckConstraint(one_of("status", tuple(BatchStatus)), name="status"),
        CheckConstraint("num_completed + num_failed <= num_total", name="counts"),
        Index("ix_batches_listing", "project_id", "created_at", "id"),
        Index(
            "ix_batches_live",
            "expires_at",
            postgresql_where=text(LIVE),
        ),
        Index(
            "ix_batches_stage_due", "project_id", text(STAGE_DUE_AT), postgresql_where=text(LIVE)
        ),
        Index("ix_batches_stage_at", "stage_at", postgresql_where=text(LIVE)),
        *(
            Index(
                name,
                text(ROWS_MODEL),
                "project_id",
                text("priority DESC"),
                text(due_at),
                "id",
                postgresql_where=text(OPEN),
            )
            for name, due_at in (
                ("ix_batches_open", _ROWS_DUE_AT_BEFORE),
                ("ix_batches_wanted", ROWS_DUE_AT),
            )
        ),
        Index(
            "ix_batches_program",
            "project_id",
            "continuation_id",
            postgresql_where=text("continuation_id IS NOT NULL"),
        ),
        Index(
            "ix_batches_ended", text(_ENDED_AT), postgresql_where=text(f"{_ENDED_AT} IS NOT NULL")
        ),
        Index(
            "ix_batches_past",
            "finalizing_at",
            postgresql_where=text(
                "status = 'completed' AND retry_of IS NULL AND num_completed >= 32"
            ),
        ),
        Index(
            "ix_batches_response_id",
            "response_id",
            postgresql_where=text("response_id IS NOT NULL"),
        ),
        Index(
            "ix_batches_output_file_id",
            "output_file_id",
            postgresql_where=text("output_file_id IS NOT NULL"),
        ),
        Index(
            "ix_batches_error_file_id",
            "error_file_id",
            postgresql_where=text("error_file_id IS NOT NULL"),
        ),
    )

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    key_id: Mapped[str | None] = mapped_column(ForeignKey("api_keys.id"))
    endpoint: Mapped[str]
    completion_window: Mapped[str]
    input_file_id: Mapped[str] = mapped_column(ForeignKey("files.id"), index=True)
    output_file_id: Mapped[str | None] = mapped_column(ForeignKey("files.id"))
    error_file_id: Mapped[str | None] = mapped_column(ForeignKey("files.id"))
    model: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default=BatchStatus.VALIDATING)
    errors: Mapped[list[dict[str, Any]] | None] = mapped_column(JSONB(none_as_null=True))
    """Validation errors, each {code, message, param, line}."""
    batch_metadata: Mapped[dict[str, str] | None] = mapped_column(
        "metadata", JSONB(none_as_null=True)
    )
    output_expires_after_s: Mapped[int | None]
    traceparent: Mapped[str | None]
    """Ours; the trace in which it was created (W3C Trace Context), which its rows continue."""
    priority: Mapped[int] = mapped_column(server_default="0")
    """Ours; among live batches a higher one goes first."""
    paused_at: Mapped[Instant | None]
    """Ours; a flag beside the status: no new row is claimed while it is set."""
    retry_of: Mapped[str | None] = mapped_column(ForeignKey("batches.id"), unique=True)
    """Ours; the batch whose unanswered rows this one runs again. A batch has one retry at most."""
    webhook_endpoints: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    """Ours; which of its project's endpoints hear of its end; null: all of them."""
    response_id: Mapped[str | None]
    """Set where it has one line, that of a background response: then its project sees no batch."""
    continuation_id: Mapped[str | None]
    """Of a background response: the program that it is a turn of."""
    wanted_at: Mapped[Instant | None]
    """Of a background response: by when its row is wanted, for the order among all rows, if that
    is not the window's end. As soon as possible: its creation; a later turn: the first one's."""

    num_total: Mapped[int] = mapped_column(server_default="0")
    num_completed: Mapped[int] = mapped_column(server_default="0")
    num_failed: Mapped[int] = mapped_column(server_default="0")
    num_stopped: Mapped[int] = mapped_column(server_default="0")
    """Of `num_failed`: rows that a cancel or the end of the window closed."""
    num_repeats: Mapped[int] = mapped_column(server_default="0")
    """Of `num_total`: rows that ask what another row asks, and are given its answer."""
    reuse_s: Mapped[int | None]
    """Ours; for so long after its creation its answers are given to the same rows of later batches
    of its project that have it set too; none: they are not."""
    num_results: Mapped[int] = mapped_column(server_default="0")
    """Last number given to a result, under this row's lock."""
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    cached_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    completion_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    reasoning_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")

    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant]
    stage_at: Mapped[CreatedAt]
    """Ours; before this instant no worker takes the batch: one has it, or it was put off."""
    in_progress_at: Mapped[Instant | None]
    finalizing_at: Mapped[Instant | None]
    completed_at: Mapped[Instant | None]
    failed_at: Mapped[Instant | None]
    expired_at: Mapped[Instant | None]
    cancelling_at: Mapped[Instant | None]
    cancelled_at: Mapped[Instant | None]


# --- Events: every transition of a batch leaves one.


class BatchEvent(Base):
    """What happened to a batch, in order."""

    __tablename__ = "batch_events"
    __table_args__ = (Index("ix_batch_events_batch", "batch_id", "id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    event: Mapped[str]
    from_status: Mapped[str | None]
    to_status: Mapped[str | None]
    actor: Mapped[str | None]
    """Whose key did it, and through which door; null where the service did it by itself."""
    detail: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[CreatedAt]


# --- Idempotency keys: a creation that is repeated under its key finds what it made.


class IdempotencyKey(Base):
    """One creation of a project under a key of the caller's.

    Invariant: written in the transaction that made the object.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("ix_idempotency_keys_created_at", "created_at"),)

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    """What was created: `file` or `batch`."""
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    """sha256 of what was asked for."""
    object_id: Mapped[str]
    created_at: Mapped[CreatedAt]
