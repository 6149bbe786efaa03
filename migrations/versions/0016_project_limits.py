"""What a project may have at once: requests, batches, bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

LIMITS = ("concurrent_requests", "live_batches", "batches_per_hour", "stored_bytes")


def upgrade() -> None:
    for name in LIMITS:
        kind = sa.BigInteger() if name == "stored_bytes" else sa.Integer()
        op.add_column("projects", sa.Column(name, kind, nullable=True))
        op.create_check_constraint(op.f(f"ck_projects_{name}"), "projects", f"{name} >= 0")


def downgrade() -> None:
    for name in reversed(LIMITS):
        op.drop_constraint(op.f(f"ck_projects_{name}"), "projects")
        op.drop_column("projects", name)
