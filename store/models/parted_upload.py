"""Uploads in parts: what was promised, and the parts that have come."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.types import CreatedAt, Instant, TextId

UPLOAD_STATUSES = ("pending", "completed", "cancelled")


class PartedUpload(Base):
    """A file that comes in parts; takes none any more after `expires_at`."""

    __tablename__ = "uploads"
    __table_args__ = (CheckConstraint(one_of("status", UPLOAD_STATUSES), name="status"),)

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    filename: Mapped[str]
    purpose: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    """What the whole file is to have."""
    expires_after_s: Mapped[int | None]
    """Of the file, from its own creation."""
    status: Mapped[str] = mapped_column(server_default="pending")
    part_ids: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    """Those that were put together, in their order."""
    file_id: Mapped[str | None]
    """What they became; the file may be gone since."""
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant] = mapped_column(index=True)


class UploadedPart(Base):
    """One part.

    Invariant: its bytes were stored whole, under its id, before this row was committed; the row
    goes after them.
    """

    __tablename__ = "upload_parts"

    id: Mapped[TextId]
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id"), index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[CreatedAt]
    removal_failed_at: Mapped[Instant | None]
