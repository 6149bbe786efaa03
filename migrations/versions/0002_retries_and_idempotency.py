"""Retries of batches, and keys under which a creation may be repeated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("retry_of", sa.Text(), nullable=True))
    op.create_foreign_key(op.f("fk_batches_retry_of"), "batches", "batches", ["retry_of"], ["id"])
    op.create_unique_constraint(op.f("uq_batches_retry_of"), "batches", ["retry_of"])
    op.create_table(
        "idempotency_keys",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("object_id", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_idempotency_keys_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "kind", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])


def downgrade() -> None:
    op.drop_index("ix_idempotency_keys_created_at", table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_constraint(op.f("uq_batches_retry_of"), "batches", type_="unique")
    op.drop_constraint(op.f("fk_batches_retry_of"), "batches", type_="foreignkey")
    op.drop_column("batches", "retry_of")
