"""Webhooks: where a project wants to hear of its batches' ends, and what was sent there."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, Text, text
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base, one_of
from store.states import DeliveryStatus
from store.types import CreatedAt, Instant, TextId


class WebhookEndpoint(Base):
    """One receiver of a project's events.

    Invariants: nothing is sent while `disabled_at` is set; `failing_since_at` is the first failure
    since the last success; the older secret signs as well until `old_secret_until_at`.
    """

    __tablename__ = "webhook_endpoints"
    __table_args__ = (Index("ix_webhook_endpoints_listing", "project_id", "created_at", "id"),)

    id: Mapped[TextId]
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    url: Mapped[str]
    event_types: Mapped[list[str]] = mapped_column(ARRAY(Text))
    secret: Mapped[bytes] = mapped_column(LargeBinary)
    """The key of the signature, as it is."""
    old_secret: Mapped[bytes | None] = mapped_column(LargeBinary)
    old_secret_until_at: Mapped[Instant | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[Instant]
    """The last change of its configuration or secret."""
    failing_since_at: Mapped[Instant | None]
    disabled_at: Mapped[Instant | None]


class WebhookDelivery(Base):
    """One event on its way to one endpoint; its id is the `webhook-id` of every attempt.

    Invariants: written in the transaction that ended the batch; one per endpoint and event; while
    `leased_until_at` is in the future an attempt is under way, and only the attempt whose number
    is `attempts` may write its outcome; `ended_at` is set exactly when it is no longer `pending`.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Unique("endpoint_id", "batch_event_id"),
        CheckConstraint(one_of("status", tuple(DeliveryStatus)), name="status"),
        CheckConstraint("(status = 'pending') = (ended_at IS NULL)", name="ended"),
        Index(
            "ix_webhook_deliveries_due",
            "endpoint_id",
            "next_at",
            postgresql_where=text("status = 'pending'"),
        ),
        Index("ix_webhook_deliveries_ended_at", "ended_at"),
    )

    id: Mapped[TextId]
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("webhook_endpoints.id", ondelete="CASCADE"))
    batch_event_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("batch_events.id", ondelete="CASCADE"), index=True
    )
    event_id: Mapped[str]
    """The same for every endpoint that hears of the event."""
    event_type: Mapped[str]
    batch_id: Mapped[str]
    """What the event is about: a batch, or a background response."""
    event_at: Mapped[Instant]
    status: Mapped[str] = mapped_column(server_default=DeliveryStatus.PENDING)
    attempts: Mapped[int] = mapped_column(server_default="0")
    next_at: Mapped[Instant]
    leased_until_at: Mapped[Instant | None]
    last_status: Mapped[int | None]
    """HTTP status of the last attempt; null where none came."""
    last_error: Mapped[str | None]
    """Why the last attempt failed, in a word; null after a success."""
    created_at: Mapped[CreatedAt]
    ended_at: Mapped[Instant | None]
