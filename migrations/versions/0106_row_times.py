"""How long the engine took to answer a row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0106"
down_revision = "0105"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("row_results", sa.Column("took_ms", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("row_results", "took_ms")
