"""API keys: only a hash is kept, the plain text is shown once."""

from __future__ import annotations

from sqlalchemy import ForeignKey, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
from store.types import CreatedAt, Instant, TextId


class ApiKey(Base):
    """A credential of a project.

    Invariant: usable while `revoked_at` is null and `expires_at` is null or in the future.
    """

    __tablename__ = "api_keys"

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    prefix: Mapped[str]
    """The first characters of the plain text, for people to recognise it by."""
    key_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    """sha256 of the plain text (32 bytes): keys have 256 random bits, so no salt is needed."""
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant | None]
    revoked_at: Mapped[Instant | None]
    last_used_at: Mapped[Instant | None]
