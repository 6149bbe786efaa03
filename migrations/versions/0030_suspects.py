"""Requests that were at an engine when it was lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "suspects",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("num_losses", sa.SmallInteger(), nullable=False),
        sa.Column("engine_url", sa.Text(), nullable=False),
        sa.Column("lost_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_suspects")),
    )


def downgrade() -> None:
    op.drop_table("suspects")
