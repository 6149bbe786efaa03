"""History of the service for charts, and who writes it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "history_points",
        sa.Column("step_s", sa.Integer(), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("figures", postgresql.ARRAY(sa.Float()), nullable=False),
        sa.PrimaryKeyConstraint(
            "step_s", "began_at", "series", "subject", name=op.f("pk_history_points")
        ),
    )
    op.create_table(
        "history_writers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("seen", postgresql.JSONB(), nullable=False),
        sa.Column(
            "beat_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_history_writers")),
    )


def downgrade() -> None:
    op.drop_table("history_writers")
    op.drop_table("history_points")
