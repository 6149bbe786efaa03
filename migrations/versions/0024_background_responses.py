"""Responses made in the background: batches of one line that belong to a response."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("response_id", sa.String(), nullable=True))
    indexes.create(
        "ix_batches_response_id", "batches", ["response_id"],
        where=sa.text("response_id IS NOT NULL"),
    )  # fmt: skip


def downgrade() -> None:
    indexes.drop("ix_batches_response_id", "batches")
    op.drop_column("batches", "response_id")
