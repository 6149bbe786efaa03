"""The models that a project may ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("models", sa.ARRAY(sa.Text()), nullable=True))


def downgrade() -> None:
    op.drop_column("projects", "models")
