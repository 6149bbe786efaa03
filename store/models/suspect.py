"""Suspects: requests that were at an engine when it was lost."""

from __future__ import annotations

from sqlalchemy import LargeBinary, SmallInteger, Text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import Instant


class Suspect(Base):
    """A request, by the digest of what its engine saw of it (gateway/prompts/quarantine.py).

    Invariant: no body and no project; a row goes a day after its last loss, or when an engine has
    answered its like.
    """

    __tablename__ = "suspects"

    digest: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    num_losses: Mapped[int] = mapped_column(SmallInteger)
    """How many times an engine was lost while one like it was there."""
    engine_url: Mapped[str] = mapped_column(Text)
    """The engine that was lost last."""
    lost_at: Mapped[Instant]
    tried_at: Mapped[Instant | None]
    """Since when one of its like runs to show that engines survive it."""
