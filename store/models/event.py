"""Events: every transition of a batch leaves one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, Index
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt


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
