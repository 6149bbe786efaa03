"""A file store that cannot be used is told to every gateway."""

from __future__ import annotations

from alembic import op

revision = "0107"
down_revision = "0106"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("INSERT INTO full_stores (store) VALUES ('files_away') ON CONFLICT DO NOTHING")


def downgrade() -> None:
    op.execute("DELETE FROM full_stores WHERE store = 'files_away'")
