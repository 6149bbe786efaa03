"""Engines that register themselves say so again and again; one that is silent is not used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("engines", sa.Column("beat_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("engines", "beat_at")
