"""Output and error files are written in parts, and a part that is written stays."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "files", sa.Column("part_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True)
    )
    op.create_table(
        "output_parts",
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("num_lines", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batches.id"],
            name=op.f("fk_output_parts_batch_id_batches"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("file_id", "number", name=op.f("pk_output_parts")),
    )
    op.create_index(op.f("ix_output_parts_batch_id"), "output_parts", ["batch_id"])


def downgrade() -> None:
    op.drop_table("output_parts")
    op.drop_column("files", "part_bytes")
