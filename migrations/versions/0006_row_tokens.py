"""Estimated prompt tokens of each row, for the quota on enqueued tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "batch_rows", sa.Column("num_tokens", sa.Integer(), server_default="0", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("batch_rows", "num_tokens")
