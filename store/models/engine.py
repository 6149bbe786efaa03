"""Engines: which there are beside ENGINE_URLS, and what the services last saw of each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, Instant


class Engine(Base):
    """One engine address, the model it serves and its last facts.

    Without `added_at` it is only remembered: it counts while ENGINE_URLS names it.
    """

    __tablename__ = "engines"

    url: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str | None]
    """What an operator calls it; null: by its address."""
    model: Mapped[str | None]
    context_tokens: Mapped[int | None]
    facts: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[CreatedAt]
    seen_at: Mapped[Instant | None]
    added_at: Mapped[Instant | None]
    """Since when it is registered: by an operator, by itself, or found."""
    draining_at: Mapped[Instant | None]
    """Since when nothing new is sent there."""
    level: Mapped[str | None]
    """How much of chat's pace batches may take there; null: what it was started with."""
    beat_at: Mapped[Instant | None]
    """When it last said itself that it is there, or was found; none where an operator added it."""
