"""Keys that may read also have `contents`: `read` opened files and results before."""

from __future__ import annotations

from alembic import op

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE api_keys SET scopes = scopes || '{contents}'::text[]"
        " WHERE 'read' = ANY(scopes) AND NOT 'contents' = ANY(scopes)"
    )


def downgrade() -> None:
    op.execute("UPDATE api_keys SET scopes = array_remove(scopes, 'contents')")
