"""Who owns things: every file, batch, key and usage row carries a project."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.models.key import DEFAULT_TIERS
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
        CheckConstraint(one_of("service_tier", DEFAULT_TIERS), name="service_tier"),
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
