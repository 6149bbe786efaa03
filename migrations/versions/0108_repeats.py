"""Rows that ask what another row asks, of their batch or of an earlier one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batch_rows", sa.Column("same_as", sa.String(), nullable=True))
    op.add_column(
        "batches", sa.Column("num_repeats", sa.Integer(), server_default="0", nullable=False)
    )
    indexes.create(
        "ix_batch_rows_same_as",
        "batch_rows",
        ["batch_id", "same_as"],
        where=sa.text("status = 'pending' AND same_as IS NOT NULL"),
    )
    op.add_column("batches", sa.Column("reuse_s", sa.Integer(), nullable=True))
    op.add_column("batch_rows", sa.Column("digest", sa.LargeBinary(), nullable=True))
    indexes.create(
        "ix_batch_rows_digest", "batch_rows", ["digest"], where=sa.text("digest IS NOT NULL")
    )


def downgrade() -> None:
    op.drop_index("ix_batch_rows_digest", table_name="batch_rows")
    op.drop_column("batch_rows", "digest")
    op.drop_column("batches", "reuse_s")
    op.drop_index("ix_batch_rows_same_as", table_name="batch_rows")
    op.drop_column("batches", "num_repeats")
    op.drop_column("batch_rows", "same_as")
