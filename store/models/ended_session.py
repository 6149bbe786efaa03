"""Sessions of the dashboard that were ended before their time."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt


class EndedSession(Base):
    """One session whose owner has logged out. Kept as long as its cookie could still be shown."""

    __tablename__ = "ended_sessions"
    __table_args__ = (Index("ix_ended_sessions_ended_at", "ended_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    """A digest of the session's random number: nothing that opens anything."""
    ended_at: Mapped[CreatedAt]
