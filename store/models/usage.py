"""Usage: tokens per key, model, class and day."""

from __future__ import annotations

from datetime import date

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of

REQUEST_CLASSES = ("online", "flex", "offline")


class Usage(Base):
    """Counters of one (project, key, model, class, day); only ever added to."""

    __tablename__ = "usage"
    __table_args__ = (CheckConstraint(one_of("request_class", REQUEST_CLASSES), name="class"),)

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    key_id: Mapped[str] = mapped_column(primary_key=True)
    """`""` where no key is known."""
    model: Mapped[str] = mapped_column(primary_key=True)
    request_class: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    num_requests: Mapped[int] = mapped_column(BigInteger, server_default="0")
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    cached_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    completion_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
