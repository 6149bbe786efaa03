"""What dispatchers hold in bytes, and how many rows they handed back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NEW = ("num_handed_back", "in_flight_bytes", "unwritten_bytes")


def upgrade() -> None:
    for name in _NEW:
        op.add_column(
            "dispatch_counts", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
        )


def downgrade() -> None:
    for name in _NEW:
        op.drop_column("dispatch_counts", name)
