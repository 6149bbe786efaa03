"""Which places are full: two rows that are only updated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    table = op.create_table(
        "full_stores",
        sa.Column("store", sa.Text(), nullable=False),
        sa.Column("full_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("store", name=op.f("pk_full_stores")),
    )
    op.bulk_insert(table, [{"store": "database"}, {"store": "files"}])


def downgrade() -> None:
    op.drop_table("full_stores")
