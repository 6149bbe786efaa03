"""Arrivals: objects of the file store that have no file yet."""

from __future__ import annotations

from sqlalchemy.orm import Mapped

from store.models.base import Base
from store.types import CreatedAt, Instant, TextId


class Arrival(Base):
    """An object that is being uploaded, or whose upload ended without a word.

    Invariant: announced before its first byte is stored, removed in the transaction that lists
    its file. So an old one is an object that nobody will ever list, whatever was lost on the way.
    """

    __tablename__ = "arrivals"

    storage_key: Mapped[TextId]
    created_at: Mapped[CreatedAt]
    removal_failed_at: Mapped[Instant | None]
