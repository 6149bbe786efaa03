"""Files: metadata here, bytes in the file store under `storage_key`."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.types import CreatedAt, Instant, TextId

FILE_PURPOSES = (
    "assistants",
    "batch",
    "batch_output",
    "fine-tune",
    "vision",
    "user_data",
    "evals",
)


class File(Base):
    """One uploaded or produced file; visible until `deleted_at` or `expires_at`."""

    __tablename__ = "files"
    __table_args__ = (
        CheckConstraint(one_of("purpose", FILE_PURPOSES), name="purpose"),
        CheckConstraint("size_bytes >= 0", name="size"),
        Index("ix_files_listing", "project_id", "created_at", "id"),
        Index(
            "ix_files_gone",
            text("LEAST(deleted_at, expires_at)"),
            postgresql_where=text("collected_at IS NULL"),
        ),
        Index(
            "ix_files_collected", "collected_at", postgresql_where=text("collected_at IS NOT NULL")
        ),
    )

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    purpose: Mapped[str]
    filename: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str]
    """Of its bytes; of the digests of its parts where it has several."""
    storage_key: Mapped[str] = mapped_column(unique=True)
    part_bytes: Mapped[list[int] | None] = mapped_column(ARRAY(BigInteger))
    """The sizes of its objects where it lies in several (batch/files/parts.py)."""
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant | None]
    deleted_at: Mapped[Instant | None]
    collected_at: Mapped[Instant | None]
    """When the bytes of a deleted or expired file were removed from the file store."""
    removal_failed_at: Mapped[Instant | None]
    """When the file store last refused to remove them."""
