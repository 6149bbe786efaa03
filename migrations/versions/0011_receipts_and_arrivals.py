"""What a lost answer to COMMIT leaves open: receipts of writes, objects without a file yet."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def _now(name: str) -> sa.Column[Any]:
    default = sa.text("statement_timestamp()")
    return sa.Column(name, sa.DateTime(timezone=True), server_default=default, nullable=False)


def upgrade() -> None:
    op.create_table(
        "write_receipts",
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        _now("written_at"),
        sa.PrimaryKeyConstraint("writer", name=op.f("pk_write_receipts")),
    )
    op.create_table(
        "arrivals",
        sa.Column("storage_key", sa.Text(), nullable=False),
        _now("created_at"),
        sa.PrimaryKeyConstraint("storage_key", name=op.f("pk_arrivals")),
    )


def downgrade() -> None:
    op.drop_table("arrivals")
    op.drop_table("write_receipts")
