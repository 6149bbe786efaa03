"""Rows: one line of a batch's input file. Bodies stay in the file and are read by range."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, SmallInteger, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.types import Instant

ROW_STATUSES = ("pending", "leased", "succeeded", "errored", "cancelled", "expired")


class BatchRow(Base):
    """One request of a batch.

    Invariant: `dispatcher_id` is set exactly while the status is `leased`.
    """

    __tablename__ = "batch_rows"
    __table_args__ = (
        CheckConstraint(one_of("status", ROW_STATUSES), name="status"),
        CheckConstraint("(status = 'leased') = (dispatcher_id IS NOT NULL)", name="lease"),
        Index("uq_batch_rows_custom_id", "batch_id", "custom_id", unique=True),
        Index(
            "ix_batch_rows_claim",
            "batch_id",
            "prefix_hash",
            "line_no",
            postgresql_where=text("status = 'pending'"),
        ),
        Index(
            "ix_batch_rows_suspects",
            "num_losses",
            "batch_id",
            postgresql_where=text("status = 'pending' AND num_losses >= 2"),
        ),
        Index("ix_batch_rows_leased", "dispatcher_id", postgresql_where=text("status = 'leased'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    line_no: Mapped[int]
    """Physical line in the input file, from 1."""
    custom_id: Mapped[str]
    offset_bytes: Mapped[int] = mapped_column(BigInteger)
    length_bytes: Mapped[int]
    prefix_hash: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Rows that begin alike share it, so that they can be dispatched together."""
    num_tokens: Mapped[int] = mapped_column(server_default="0")
    """Estimated tokens of its prompt, for the quota on enqueued tokens."""
    status: Mapped[str] = mapped_column(server_default="pending")
    attempt: Mapped[int] = mapped_column(server_default="0")
    """Attempts so far that failed in a way worth repeating; their number is bounded."""
    num_losses: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    """How many times an engine was lost while the row was there (batch/run/quarantine.py)."""
    num_refusals: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    """How many times an engine turned the row away with 429 or 503 (batch/run/retry.py)."""
    available_at: Mapped[Instant | None]
    """Not claimed before this instant (back-off after a failed attempt)."""
    dispatcher_id: Mapped[str | None]
    rid: Mapped[str | None]
    """What the version before called `claim_id`; goes with the next release."""
    claim_id: Mapped[str | None]
    """Which claim of its dispatcher leased it: one that got no answer is taken back by this."""
    last_error: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
