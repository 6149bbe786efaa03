"""The level that an operator has set for an engine at work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("engines", sa.Column("level", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("engines", "level")
