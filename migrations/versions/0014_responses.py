"""Responses that are stored, and conversations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    now = sa.text("statement_timestamp()")
    op.create_table(
        "responses",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("previous_response_id", sa.String()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("input_items", sa.LargeBinary(), nullable=False),
        sa.Column("item_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", instant, server_default=now, nullable=False),
        sa.Column("expires_at", instant, nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_responses_project_id_projects"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_responses"),
    )
    op.create_index("ix_responses_expires_at", "responses", ["expires_at"])
    op.create_index("ix_responses_item_ids", "responses", ["item_ids"], postgresql_using="gin")
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", instant, server_default=now, nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_conversations_project_id_projects"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_table(
        "conversation_items",
        sa.Column("place", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("item", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_conversation_items_conversation_id_conversations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("place", name="pk_conversation_items"),
    )
    op.create_index(
        "ix_conversation_items_listing", "conversation_items", ["conversation_id", "place"]
    )


def downgrade() -> None:
    op.drop_table("conversation_items")
    op.drop_table("conversations")
    op.drop_table("responses")
