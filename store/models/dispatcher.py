"""Dispatchers: the lease under which rows are claimed and results are written."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, Instant, TextId


class Dispatcher(Base):
    """One leased dispatcher of one engine.

    Invariant: at most one row per engine is alive (unique `engine_url`); a new owner replaces the
    row and its `id` is the fencing token that every write under the lease carries.
    """

    __tablename__ = "dispatchers"

    id: Mapped[TextId]
    engine_url: Mapped[str] = mapped_column(unique=True)
    acquired_at: Mapped[CreatedAt]
    heartbeat_at: Mapped[Instant]
