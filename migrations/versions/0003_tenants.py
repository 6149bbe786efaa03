"""Organisations above projects, roles and limits of keys, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# What every key could do before keys had scopes.
_ALL_SCOPES = "ARRAY['chat', 'files', 'batches', 'webhooks']"

_GUARD = """
CREATE FUNCTION refuse_change_of_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit_log is only ever appended to';
END
$$
"""
_GUARD_TRIGGER = """
CREATE TRIGGER audit_log_append_only
BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit_log()
"""


def upgrade() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organizations")),
    )
    op.execute("INSERT INTO organizations (id, name) VALUES ('org_default', 'Default')")
    op.add_column(
        "projects",
        sa.Column("organization_id", sa.Text(), server_default="org_default", nullable=False),
    )
    op.add_column("projects", sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("projects", sa.Column("batch_enqueued_token_limit", sa.BigInteger()))
    op.create_index(op.f("ix_projects_organization_id"), "projects", ["organization_id"])
    op.create_foreign_key(
        op.f("fk_projects_organization_id"),
        "projects",
        "organizations",
        ["organization_id"],
        ["id"],
    )
    op.create_check_constraint(
        op.f("ck_projects_batch_enqueued_token_limit"),
        "projects",
        "batch_enqueued_token_limit >= 0",
    )
    for table in ("projects", "api_keys"):
        op.add_column(table, sa.Column("requests_per_minute", sa.Integer()))
        op.add_column(table, sa.Column("tokens_per_minute", sa.BigInteger()))
        for column in ("requests_per_minute", "tokens_per_minute"):
            op.create_check_constraint(op.f(f"ck_{table}_{column}"), table, f"{column} >= 0")
    op.add_column("api_keys", sa.Column("role", sa.String()))
    op.create_check_constraint(
        op.f("ck_api_keys_role"), "api_keys", "role IN ('viewer', 'operator', 'admin')"
    )
    op.execute("UPDATE api_keys SET role = 'admin' WHERE 'admin' = ANY(scopes)")
    op.execute(f"UPDATE api_keys SET scopes = {_ALL_SCOPES}")
    _create_audit_log()


def downgrade() -> None:
    op.drop_table("audit_log")
    op.execute("DROP FUNCTION refuse_change_of_audit_log()")
    op.execute(
        "UPDATE api_keys SET scopes = CASE role WHEN 'admin' THEN ARRAY['admin'] "
        "ELSE ARRAY[]::text[] END"
    )
    op.drop_column("api_keys", "role")
    for table in ("projects", "api_keys"):
        for column in ("requests_per_minute", "tokens_per_minute"):
            op.drop_column(table, column)
    op.drop_column("projects", "batch_enqueued_token_limit")
    op.drop_column("projects", "archived_at")
    op.drop_column("projects", "organization_id")
    op.drop_table("organizations")


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("actor_key_id", sa.String(), nullable=True),
        sa.Column("actor_name", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        _created_at(),
        sa.CheckConstraint(
            "source IN ('cli', 'api', 'dashboard', 'system')", name=op.f("ck_audit_log_source")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_audit_log_organization_id")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_audit_log_project_id")
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit_log")),
        sa.UniqueConstraint("id", name=op.f("uq_audit_log_id")),
    )
    op.create_index("ix_audit_log_organization", "audit_log", ["organization_id", "seq"])
    op.execute(_GUARD)
    op.execute(_GUARD_TRIGGER)


def _created_at() -> sa.Column[object]:
    return sa.Column(
        "created_at",
        sa.DateTime(timezone=True),
        server_default=sa.text("statement_timestamp()"),
        nullable=False,
    )
