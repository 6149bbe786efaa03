"""What engines are called, and which webhook endpoints hear of a batch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("engines", sa.Column("name", sa.String(), nullable=True))
    op.add_column("batches", sa.Column("webhook_endpoints", sa.ARRAY(sa.Text()), nullable=True))


def downgrade() -> None:
    op.drop_column("batches", "webhook_endpoints")
    op.drop_column("engines", "name")
