"""A batch remembers the trace in which it was created, so that its rows continue it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("traceparent", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("batches", "traceparent")
