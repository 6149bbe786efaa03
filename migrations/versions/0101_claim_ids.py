"""A row's claim has a name of its own: `rid` is an engine's word for a request.

Code of the version before writes `rid` for as long as it runs beside this one's.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batch_rows", sa.Column("claim_id", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("batch_rows", "claim_id")
