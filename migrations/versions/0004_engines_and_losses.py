"""A registry of engines, engine losses per row, and what each dispatcher has counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COUNTERS = ("num_claimed", "num_results", "num_retries", "num_fenced", "num_refused", "num_losses")
_GAUGES = ("num_in_flight", "num_unwritten", "window_rows")


def upgrade() -> None:
    for name in ("added_at", "draining_at"):
        op.add_column("engines", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "batch_rows",
        sa.Column("num_losses", sa.SmallInteger(), server_default="0", nullable=False),
    )
    op.create_index(
        "ix_batch_rows_suspects",
        "batch_rows",
        ["num_losses", "batch_id"],
        postgresql_where=sa.text("status = 'pending' AND num_losses >= 2"),
    )
    op.create_table(
        "dispatch_counts",
        sa.Column("engine_url", sa.Text(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
            for name in _COUNTERS
        ),
        *(sa.Column(name, sa.Integer(), server_default="0", nullable=False) for name in _GAUGES),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("engine_url", name=op.f("pk_dispatch_counts")),
    )


def downgrade() -> None:
    op.drop_table("dispatch_counts")
    op.drop_index("ix_batch_rows_suspects", table_name="batch_rows")
    op.drop_column("batch_rows", "num_losses")
    for name in ("draining_at", "added_at"):
        op.drop_column("engines", name)
