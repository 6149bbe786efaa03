"""Idempotency keys: a creation that is repeated under its key finds what it made."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt


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
