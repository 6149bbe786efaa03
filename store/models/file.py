"""Files, uploads in parts, and what is still arriving."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, DateTime, ForeignKey, Index, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.states import STORED_UPLOAD, UploadStatus
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


# --- Uploads in parts: what was promised, and the parts that have come.


class PartedUpload(Base):
    """A file that comes in parts; takes none any more after `expires_at`."""

    __tablename__ = "uploads"
    __table_args__ = (CheckConstraint(one_of("status", STORED_UPLOAD), name="status"),)

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    filename: Mapped[str]
    purpose: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    """What the whole file is to have."""
    expires_after_s: Mapped[int | None]
    """Of the file, from its own creation."""
    status: Mapped[str] = mapped_column(server_default=UploadStatus.PENDING)
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


# --- Arrivals: objects of the file store that have no file yet.


class Arrival(Base):
    """An object that is being uploaded, or whose upload ended without a word.

    Invariant: announced before its first byte is stored, removed in the transaction that lists
    its file. So an old one is an object that nobody will ever list, whatever was lost on the way.
    """

    __tablename__ = "arrivals"

    storage_key: Mapped[TextId]
    created_at: Mapped[CreatedAt]
    removal_failed_at: Mapped[Instant | None]


# --- Full stores: where there was no room lately.


STORES = ("database", "files", "files_away")


class FullStore(Base):
    """One row for each place where things are kept, made by the migration.

    Invariant: rows are only updated. An update of a row this small needs no new page, so that a
    full database can still say that it is full.
    """

    __tablename__ = "full_stores"

    store: Mapped[TextId]
    """`database` or `files`; `files_away`: the file store cannot be used, whatever its room."""
    full_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """When a write last failed there."""
