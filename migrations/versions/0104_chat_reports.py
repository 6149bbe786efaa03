"""What chat gets at engines that are not ours, told by gateways to dispatchers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chat_reports",
        sa.Column("engine_url", sa.Text(), primary_key=True),
        sa.Column("gateway", sa.Text(), primary_key=True),
        sa.Column("num_open", sa.Integer(), nullable=False),
        sa.Column("pressure", sa.Float(), nullable=False),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
    )


def downgrade() -> None:
    op.drop_table("chat_reports")
