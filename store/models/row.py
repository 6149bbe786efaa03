"""Rows of batches, their results, and what protects both from being written twice."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    SmallInteger,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.states import RowStatus
from store.types import CreatedAt, Instant, TextId


class BatchRow(Base):
    """One request of a batch.

    Invariant: `dispatcher_id` is set exactly while the status is `leased`.
    """

    __tablename__ = "batch_rows"
    __table_args__ = (
        CheckConstraint(one_of("status", tuple(RowStatus)), name="status"),
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
        Index("ix_batch_rows_digest", "digest", postgresql_where=text("digest IS NOT NULL")),
        Index(
            "ix_batch_rows_same_as",
            "batch_id",
            "same_as",
            postgresql_where=text("status = 'pending' AND same_as IS NOT NULL"),
        ),
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
    same_as: Mapped[str | None]
    """The `custom_id` of the row of its batch that asks the same. This one goes to no engine: it is
    given that one's answer (batch/run/repeats.py)."""
    digest: Mapped[bytes | None] = mapped_column(LargeBinary)
    """Of what it asks, where its batch's answers are used again (batch/run/repeats.py)."""
    status: Mapped[str] = mapped_column(server_default=RowStatus.PENDING)
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


# --- Results: at most one per row, by primary key.


class RowResult(Base):
    """The one answer of a row: a whole output or error line, ready to be written.

    Invariant: (batch_id, seq) is unique and dense per batch; it is assigned under the batch
    row's lock, so results can be read append-only in `seq` order.
    """

    __tablename__ = "row_results"
    __table_args__ = (
        Index("uq_row_results_seq", "batch_id", "seq", unique=True),
        Index("ix_row_results_failed", "batch_id", "seq", postgresql_where=text("NOT succeeded")),
    )

    row_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """No foreign key: only the fenced write makes results, of rows that it holds.
    """
    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    seq: Mapped[int]
    """1-based number inside the batch."""
    succeeded: Mapped[bool]
    """True: a line of the output file; False: of the error file."""
    line: Mapped[bytes] = mapped_column(LargeBinary)
    """One JSON object, UTF-8, without the final newline."""
    prompt_tokens: Mapped[int] = mapped_column(server_default="0")
    cached_tokens: Mapped[int] = mapped_column(server_default="0")
    completion_tokens: Mapped[int] = mapped_column(server_default="0")
    created_at: Mapped[CreatedAt]
    took_ms: Mapped[int | None]
    """From sending the last attempt to the engine until its answer; null for a row that got none.
    """


# --- Output parts: how far the output and error file of a batch are written.


class OutputPart(Base):
    """One part of a file that is being written; gone when the file is listed.

    Invariant: the part's object was stored whole before this row was committed, and holds the
    results after the part before it up to `last_seq`.
    """

    __tablename__ = "output_parts"

    file_id: Mapped[TextId]
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 1."""
    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    last_seq: Mapped[int]
    num_lines: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str]


# --- Suspects: requests that were at an engine when it was lost.


class Suspect(Base):
    """A request, by the digest of what its engine saw of it (gateway/prompts/quarantine.py).

    Invariant: no body and no project; a row goes a day after its last loss, or when an engine has
    answered its like.
    """

    __tablename__ = "suspects"

    digest: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    num_losses: Mapped[int] = mapped_column(SmallInteger)
    """How many times an engine was lost while one like it was there."""
    engine_url: Mapped[str] = mapped_column(Text)
    """The engine that was lost last."""
    lost_at: Mapped[Instant]
    tried_at: Mapped[Instant | None]
    """Since when one of its like runs to show that engines survive it."""


# --- Write receipts: which writes of counters have been applied.


class WriteReceipt(Base):
    """The last write of one writer: a dispatcher, or the usage recorder of a gateway process.

    Invariant: set in the transaction of the write itself, so a write whose COMMIT got no answer
    is known to have been applied by its number, and is not applied again.
    """

    __tablename__ = "write_receipts"

    writer: Mapped[TextId]
    number: Mapped[int] = mapped_column(BigInteger)
    """From 1; the writer counts its writes and repeats one until it knows its end."""
    written_at: Mapped[CreatedAt]
