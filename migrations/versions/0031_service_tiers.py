"""Default service tiers of keys and projects, and how long flex waits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

TABLES = ("api_keys", "projects")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("service_tier", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("flex_wait_seconds", sa.Integer(), nullable=True))
        op.create_check_constraint(
            op.f(f"ck_{table}_service_tier"), table, "service_tier IN ('default', 'flex')"
        )
        op.create_check_constraint(
            op.f(f"ck_{table}_flex_wait_seconds"), table, "flex_wait_seconds >= 0"
        )
    op.add_column(
        "api_keys",
        sa.Column("may_raise_tier", sa.Boolean(), server_default=sa.false(), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("api_keys", "may_raise_tier")
    for table in TABLES:
        op.drop_column(table, "flex_wait_seconds")
        op.drop_column(table, "service_tier")
