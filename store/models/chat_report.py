"""What chat gets at an engine that is not ours, as each gateway measures it."""

from __future__ import annotations

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt


class ChatReport(Base):
    """One row per engine and process of a gateway; an old one says nothing any more."""

    __tablename__ = "chat_reports"

    engine_url: Mapped[str] = mapped_column(Text, primary_key=True)
    gateway: Mapped[str] = mapped_column(Text, primary_key=True)
    num_open: Mapped[int]
    """Chat requests that it has there."""
    pressure: Mapped[float]
    """The worst latency of late over its target."""
    updated_at: Mapped[CreatedAt]
