"""Workers claim batches that want a stage, and dispatchers look at the first open ones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_LIVE = "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"
_DUE_AT = """(
CASE
    WHEN status = 'in_progress' AND (paused_at IS NOT NULL \
OR (num_completed + num_failed) < num_total) THEN GREATEST(stage_at, expires_at)
    ELSE stage_at
END)"""
_OPEN = "status = 'in_progress' AND paused_at IS NULL AND num_completed + num_failed < num_total"
_ROWS_DUE_AT = """(
CASE
    WHEN response_id IS NULL THEN expires_at
    ELSE created_at
END)"""


def upgrade() -> None:
    # The default is worked out once for what is there: the table is not written anew.
    op.add_column(
        "batches",
        sa.Column(
            "stage_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
    )
    indexes.create(
        "ix_batches_stage_due", "batches", ["project_id", sa.text(_DUE_AT)], where=sa.text(_LIVE)
    )
    indexes.create("ix_batches_stage_at", "batches", ["stage_at"], where=sa.text(_LIVE))
    indexes.create(
        "ix_batches_open", "batches",
        [
            sa.text("COALESCE(model, '')"), "project_id", sa.text("priority DESC"),
            sa.text(_ROWS_DUE_AT), "id",
        ],
        where=sa.text(_OPEN),
    )  # fmt: skip


def downgrade() -> None:
    indexes.drop("ix_batches_open", "batches")
    indexes.drop("ix_batches_stage_at", "batches")
    indexes.drop("ix_batches_stage_due", "batches")
    op.drop_column("batches", "stage_at")
