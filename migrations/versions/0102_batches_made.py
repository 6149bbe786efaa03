"""How many batches a project has created, so that its limits need no count of them each time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A database that was at 0032 has it (`store.schema.LAST_BEFORE`).
    op.add_column(
        "projects",
        sa.Column("batches_made", sa.BigInteger(), server_default="0", nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    op.drop_column("projects", "batches_made")
