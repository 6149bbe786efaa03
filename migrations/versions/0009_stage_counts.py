"""What the workers' stages did."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    def total(name: str, kind: Any) -> sa.Column[Any]:
        return sa.Column(name, kind, server_default="0", nullable=False)

    op.create_table(
        "stage_counts",
        sa.Column("stage", sa.Text(), nullable=False),
        total("num_runs", sa.BigInteger()),
        total("num_failed", sa.BigInteger()),
        total("wall_s", sa.Float()),
        total("cpu_s", sa.Float()),
        total("peak_rss_bytes", sa.BigInteger()),
        sa.Column(
            "ended_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("stage", name=op.f("pk_stage_counts")),
    )


def downgrade() -> None:
    op.drop_table("stage_counts")
