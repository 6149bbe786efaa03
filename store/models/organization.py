"""Organisations: who runs projects together, with one set of operators and one audit log."""

from __future__ import annotations

from sqlalchemy.orm import Mapped

from store.models.base import Base
from store.types import CreatedAt, TextId


class Organization(Base):
    """Owner of projects. `org_default` is made by a migration."""

    __tablename__ = "organizations"

    id: Mapped[TextId]
    name: Mapped[str]
    created_at: Mapped[CreatedAt]


DEFAULT_ORGANIZATION_ID = "org_default"
