"""Keys, and the dashboard's sessions that were ended."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, Text, false
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from api.shared_rules import SERVED_TIERS
from store.models.base import Base, one_of
from store.types import CreatedAt, Instant, TextId

KEY_SCOPES = ("chat", "files", "batches", "webhooks", "read", "contents")
"""What a key may do in its project (gateway/auth/scopes.py says what each word opens)."""

WRITE_SCOPES = KEY_SCOPES[:4]
"""Everything: what a key has unless less is asked for."""

KEY_ROLES = ("viewer", "operator", "admin")


class ApiKey(Base):
    """A credential of a project, and of an operator where it has a role.

    Invariant: usable while `revoked_at` is null, `expires_at` is null or in the future, and its
    project is not archived.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint(one_of("role", KEY_ROLES), name="role"),
        CheckConstraint("requests_per_minute >= 0", name="requests_per_minute"),
        CheckConstraint("tokens_per_minute >= 0", name="tokens_per_minute"),
        CheckConstraint(one_of("service_tier", SERVED_TIERS), name="service_tier"),
        CheckConstraint("flex_wait_seconds >= 0", name="flex_wait_seconds"),
    )

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    prefix: Mapped[str]
    """The first characters of the plain text, for people to recognise it by."""
    key_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    """sha256 of the plain text (32 bytes): keys have 256 random bits, so no salt is needed."""
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    """Some of `KEY_SCOPES`."""
    role: Mapped[str | None]
    """What it may do with its organisation, in the dashboard and the administration API."""
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Instant | None]
    revoked_at: Mapped[Instant | None]
    last_used_at: Mapped[Instant | None]
    requests_per_minute: Mapped[int | None]
    """Of this key alone; null: the default of the settings, 0: none at all. So is the next one."""
    tokens_per_minute: Mapped[int | None] = mapped_column(BigInteger)
    service_tier: Mapped[str | None] = mapped_column(Text)
    """Of requests that name none; null: the project's."""
    may_raise_tier: Mapped[bool] = mapped_column(server_default=false())
    """Whether a request may name a better tier than its default."""
    flex_wait_seconds: Mapped[int | None]
    """How long a flex request waits for room before it is refused; null: as the project says."""


# --- Sessions of the dashboard that were ended before their time.


class EndedSession(Base):
    """One session whose owner has logged out, or one form that may be sent once.

    Kept as long as the cookie could still be shown.
    """

    __tablename__ = "ended_sessions"
    __table_args__ = (Index("ix_ended_sessions_ended_at", "ended_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    """A digest of a random number of the session or the form: nothing that opens anything."""
    ended_at: Mapped[CreatedAt]
