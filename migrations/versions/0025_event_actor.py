"""Who did what happened to a batch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batch_events", sa.Column("actor", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("batch_events", "actor")
