"""The audit log: what was done to organisations, projects and keys, and by whom."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.types import CreatedAt

AUDIT_SOURCES = ("cli", "api", "dashboard", "system")


class AuditEntry(Base):
    """One act of an operator.

    Invariant: only ever inserted, in the transaction of the act; a trigger of the database refuses
    every update, delete and truncation. Holds no secret.
    """

    __tablename__ = "audit_log"
    __table_args__ = (
        CheckConstraint(one_of("source", AUDIT_SOURCES), name="source"),
        Index("ix_audit_log_organization", "organization_id", "seq"),
    )

    seq: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    organization_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    """The project it was about, if it was about one."""
    action: Mapped[str]
    """Noun and verb, as in `api_key.created`."""
    target_id: Mapped[str]
    source: Mapped[str]
    """Through which door."""
    actor_key_id: Mapped[str | None]
    """The key of whoever did it; null on the command line of the host."""
    actor_name: Mapped[str]
    """The key's name then, or the host's user."""
    address: Mapped[str | None]
    """Network address it came from, where there was one."""
    request_id: Mapped[str | None]
    detail: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[CreatedAt]
