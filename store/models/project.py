"""Projects, what they have used, and the audit log."""

from __future__ import annotations

from datetime import date
from typing import Any

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Identity, Index, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.shared_rules import SERVED_TIERS
from store.models.base import Base, one_of
from store.models.organization import DEFAULT_ORGANIZATION_ID
from store.types import CreatedAt, Instant, TextId


class Project(Base):
    """One tenant. `proj_default` is made by the first migration.

    Invariant: the keys of an archived project open nothing; what it owns stays.
    """

    __tablename__ = "projects"
    __table_args__ = (
        CheckConstraint("requests_per_minute >= 0", name="requests_per_minute"),
        CheckConstraint("tokens_per_minute >= 0", name="tokens_per_minute"),
        CheckConstraint("batch_enqueued_token_limit >= 0", name="batch_enqueued_token_limit"),
        CheckConstraint("concurrent_requests >= 0", name="concurrent_requests"),
        CheckConstraint("live_batches >= 0", name="live_batches"),
        CheckConstraint("batches_per_hour >= 0", name="batches_per_hour"),
        CheckConstraint("stored_bytes >= 0", name="stored_bytes"),
        CheckConstraint(one_of("service_tier", SERVED_TIERS), name="service_tier"),
        CheckConstraint("flex_wait_seconds >= 0", name="flex_wait_seconds"),
    )

    id: Mapped[TextId]
    organization_id: Mapped[str] = mapped_column(
        ForeignKey("organizations.id"), server_default=DEFAULT_ORGANIZATION_ID, index=True
    )
    name: Mapped[str]
    created_at: Mapped[CreatedAt]
    archived_at: Mapped[Instant | None]
    requests_per_minute: Mapped[int | None]
    """Of all its keys together; null: what the settings say, 0: none at all. So the next two."""
    tokens_per_minute: Mapped[int | None] = mapped_column(BigInteger)
    batch_enqueued_token_limit: Mapped[int | None] = mapped_column(BigInteger)
    """Prompt tokens of live batches, per model (row B-31)."""
    concurrent_requests: Mapped[int | None]
    """Online requests in flight at one gateway; null: no limit. So the next three."""
    live_batches: Mapped[int | None]
    """Batches that have not ended."""
    batches_per_hour: Mapped[int | None]
    """Batches created within the last hour."""
    batches_made: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Batches ever created, each counted in the transaction that adds it."""
    stored_bytes: Mapped[int | None] = mapped_column(BigInteger)
    """Bytes of files that are not deleted and have not expired."""
    models: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    """Names of the models that it may ask for; null: all that are served."""
    service_tier: Mapped[str | None] = mapped_column(Text)
    """Of requests that name none, unless their key says otherwise; null: `default`."""
    flex_wait_seconds: Mapped[int | None]
    """How long flex requests wait for room before they are refused; null: not at all."""


DEFAULT_PROJECT_ID = "proj_default"


# --- Usage: tokens per key, model, class and day.


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


# --- The audit log: what was done to organisations, projects and keys, and by whom.


AUDIT_SOURCES = ("cli", "api", "dashboard", "system")


class AuditEntry(Base):
    """One act of an operator.

    Invariant: only ever inserted, in the transaction of the act; a trigger of the database refuses
    every update, delete and truncation. Holds no secret.
    """

    __tablename__ = "audit_log"
    __table_args__ = (
        CheckConstraint(one_of("source", AUDIT_SOURCES), name="source"),
        Index("ix_audit_log_organization", "organization_id", "seq"),
    )

    seq: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    organization_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    """The project it was about, if it was about one."""
    action: Mapped[str]
    """Noun and verb, as in `api_key.created`."""
    target_id: Mapped[str]
    source: Mapped[str]
    """Through which door."""
    actor_key_id: Mapped[str | None]
    """The key of whoever did it; null on the command line of the host."""
    actor_name: Mapped[str]
    """The key's name then, or the host's user."""
    address: Mapped[str | None]
    """Network address it came from, where there was one."""
    request_id: Mapped[str | None]
    detail: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[CreatedAt]
