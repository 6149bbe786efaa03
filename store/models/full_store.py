"""Full stores: where there was no room lately."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import TextId

STORES = ("database", "files")


class FullStore(Base):
    """One row for each place where things are kept, made by the migration.

    Invariant: rows are only updated. An update of a row this small needs no new page, so that a
    full database can still say that it is full.
    """

    __tablename__ = "full_stores"

    store: Mapped[TextId]
    """`database` or `files`."""
    full_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    """When a write last failed for want of room."""
