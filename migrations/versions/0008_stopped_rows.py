"""How many rows of a batch were closed by a cancel or by the end of its window."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "batches", sa.Column("num_stopped", sa.Integer(), server_default="0", nullable=False)
    )
    op.execute(
        """
        UPDATE batches b SET num_stopped = r.n
        FROM (SELECT batch_id, count(*) AS n FROM batch_rows
              WHERE status IN ('cancelled', 'expired') GROUP BY batch_id) r
        WHERE r.batch_id = b.id
        """
    )


def downgrade() -> None:
    op.drop_column("batches", "num_stopped")
