"""Conversations expire; an object that cannot be removed stands back behind all others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_OBJECTS = ("files", "arrivals", "upload_parts")
_HELD = ("responses", "conversations")


def upgrade() -> None:
    for table in _OBJECTS:
        op.add_column(table, sa.Column("removal_failed_at", sa.DateTime(timezone=True)))
    op.add_column(
        "conversations",
        sa.Column(
            "expires_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("(statement_timestamp() + '30 days'::interval)"),
        ),
    )
    indexes.create("ix_conversations_expires_at", "conversations", ["expires_at"])
    for table in _HELD:
        indexes.create(f"ix_{table}_project_id", table, ["project_id"])


def downgrade() -> None:
    for table in _HELD:
        indexes.drop(f"ix_{table}_project_id", table)
    indexes.drop("ix_conversations_expires_at", "conversations")
    op.drop_column("conversations", "expires_at")
    for table in _OBJECTS:
        op.drop_column(table, "removal_failed_at")
