"""Who owns things: every file, batch, key and usage row carries a project."""

from __future__ import annotations

from sqlalchemy.orm import Mapped

from store.models.base import Base
from store.types import CreatedAt, TextId


class Project(Base):
    """One tenant. `proj_default` is made by the first migration."""

    __tablename__ = "projects"

    id: Mapped[TextId]
    name: Mapped[str]
    created_at: Mapped[CreatedAt]


DEFAULT_PROJECT_ID = "proj_default"
