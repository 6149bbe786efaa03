"""How often an engine turned a row away because it was full; such calls are no attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "batch_rows",
        sa.Column("num_refusals", sa.SmallInteger(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("batch_rows", "num_refusals")
