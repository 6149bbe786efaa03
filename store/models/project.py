"""Who owns things: every file, batch, key and usage row carries a project."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from store.models.base import Base
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
    """Prompt tokens of live batches, per model (contract row B-31)."""


DEFAULT_PROJECT_ID = "proj_default"
