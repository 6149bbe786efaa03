"""Turns of a program of background responses, and by when rows are wanted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0109"
down_revision = "0108"
branch_labels = None
depends_on = None

_OPEN = "status = 'in_progress' AND paused_at IS NULL AND num_completed + num_failed < num_total"


def upgrade() -> None:
    op.add_column("batches", sa.Column("continuation_id", sa.String(), nullable=True))
    op.add_column("batches", sa.Column("wanted_at", sa.DateTime(timezone=True), nullable=True))
    indexes.create(
        "ix_batches_wanted",
        "batches",
        [
            sa.text("COALESCE(model, '')"),
            "project_id",
            sa.text("priority DESC"),
            sa.text("COALESCE(wanted_at, expires_at)"),
            "id",
        ],
        where=sa.text(_OPEN),
    )
    indexes.create(
        "ix_batches_program",
        "batches",
        ["project_id", "continuation_id"],
        where=sa.text("continuation_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_batches_program", table_name="batches")
    op.drop_index("ix_batches_wanted", table_name="batches")
    op.drop_column("batches", "wanted_at")
    op.drop_column("batches", "continuation_id")
