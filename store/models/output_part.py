"""Output parts: how far the output and error file of a batch are written."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import TextId


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
