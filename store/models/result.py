"""Results: at most one per row, by primary key."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt


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
