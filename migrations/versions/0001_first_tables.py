"""The first tables: projects, keys, files, batches, rows, results, events, usage, leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dispatchers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("engine_url", sa.String(), nullable=False),
        sa.Column(
            "acquired_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dispatchers")),
        sa.UniqueConstraint("engine_url", name=op.f("uq_dispatchers_engine_url")),
    )
    op.create_table(
        "engines",
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("context_tokens", sa.Integer(), nullable=True),
        sa.Column(
            "facts", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("url", name=op.f("pk_engines")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_api_keys_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_index(op.f("ix_api_keys_project_id"), "api_keys", ["project_id"], unique=False)
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("storage_key", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("collected_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "purpose IN ('assistants', 'batch', 'batch_output', 'fine-tune', 'vision', 'user_data', 'evals')",
            name=op.f("ck_files_purpose"),
        ),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_files_size")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_files_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
        sa.UniqueConstraint("storage_key", name=op.f("uq_files_storage_key")),
    )
    op.create_index("ix_files_listing", "files", ["project_id", "created_at", "id"], unique=False)
    op.create_table(
        "usage",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("request_class", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("num_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "request_class IN ('online', 'flex', 'offline')", name=op.f("ck_usage_class")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_usage_project_id")),
        sa.PrimaryKeyConstraint(
            "project_id", "key_id", "model", "request_class", "day", name=op.f("pk_usage")
        ),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("completion_window", sa.String(), nullable=False),
        sa.Column("input_file_id", sa.Text(), nullable=False),
        sa.Column("output_file_id", sa.Text(), nullable=True),
        sa.Column("error_file_id", sa.Text(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("status", sa.String(), server_default="validating", nullable=False),
        sa.Column(
            "errors", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "metadata", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("output_expires_after_s", sa.Integer(), nullable=True),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("num_total", sa.Integer(), server_default="0", nullable=False),
        sa.Column("num_completed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("num_failed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("num_results", sa.Integer(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("in_progress_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finalizing_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelling_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')",
            name=op.f("ck_batches_status"),
        ),
        sa.CheckConstraint(
            "num_completed + num_failed <= num_total", name=op.f("ck_batches_counts")
        ),
        sa.ForeignKeyConstraint(
            ["error_file_id"], ["files.id"], name=op.f("fk_batches_error_file_id")
        ),
        sa.ForeignKeyConstraint(
            ["input_file_id"], ["files.id"], name=op.f("fk_batches_input_file_id")
        ),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name=op.f("fk_batches_key_id")),
        sa.ForeignKeyConstraint(
            ["output_file_id"], ["files.id"], name=op.f("fk_batches_output_file_id")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_batches_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index(op.f("ix_batches_input_file_id"), "batches", ["input_file_id"], unique=False)
    op.create_index(
        "ix_batches_listing", "batches", ["project_id", "created_at", "id"], unique=False
    )
    op.create_index(
        "ix_batches_live",
        "batches",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text(
            "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"
        ),
    )
    op.create_table(
        "batch_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("from_status", sa.String(), nullable=True),
        sa.Column("to_status", sa.String(), nullable=True),
        sa.Column(
            "detail", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_batch_events_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batch_events")),
    )
    op.create_index("ix_batch_events_batch", "batch_events", ["batch_id", "id"], unique=False)
    op.create_table(
        "batch_rows",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("line_no", sa.Integer(), nullable=False),
        sa.Column("custom_id", sa.String(), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger(), nullable=False),
        sa.Column("length_bytes", sa.Integer(), nullable=False),
        sa.Column("prefix_hash", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("status", sa.String(), server_default="pending", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("available_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dispatcher_id", sa.String(), nullable=True),
        sa.Column("rid", sa.String(), nullable=True),
        sa.Column(
            "last_error", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.CheckConstraint(
            "(status = 'leased') = (dispatcher_id IS NOT NULL)", name=op.f("ck_batch_rows_lease")
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'leased', 'succeeded', 'errored', 'cancelled', 'expired')",
            name=op.f("ck_batch_rows_status"),
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_batch_rows_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batch_rows")),
    )
    op.create_index(
        "ix_batch_rows_claim",
        "batch_rows",
        ["batch_id", "prefix_hash", "line_no"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_batch_rows_leased",
        "batch_rows",
        ["dispatcher_id"],
        unique=False,
        postgresql_where=sa.text("status = 'leased'"),
    )
    op.create_index("uq_batch_rows_custom_id", "batch_rows", ["batch_id", "custom_id"], unique=True)
    op.create_table(
        "row_results",
        sa.Column("row_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("succeeded", sa.Boolean(), nullable=False),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cached_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("completion_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("statement_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name=op.f("fk_row_results_batch_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["row_id"], ["batch_rows.id"], name=op.f("fk_row_results_row_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("row_id", name=op.f("pk_row_results")),
    )
    op.create_index("uq_row_results_seq", "row_results", ["batch_id", "seq"], unique=True)
    op.create_index(
        "ix_row_results_failed",
        "row_results",
        ["batch_id", "seq"],
        unique=False,
        postgresql_where=sa.text("NOT succeeded"),
    )
    op.execute("INSERT INTO projects (id, name) VALUES ('proj_default', 'Default')")


def downgrade() -> None:
    op.drop_index(
        "ix_row_results_failed",
        table_name="row_results",
        postgresql_where=sa.text("NOT succeeded"),
    )
    op.drop_index("uq_row_results_seq", table_name="row_results")
    op.drop_table("row_results")
    op.drop_index("uq_batch_rows_custom_id", table_name="batch_rows")
    op.drop_index(
        "ix_batch_rows_leased",
        table_name="batch_rows",
        postgresql_where=sa.text("status = 'leased'"),
    )
    op.drop_index(
        "ix_batch_rows_claim",
        table_name="batch_rows",
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.drop_table("batch_rows")
    op.drop_index("ix_batch_events_batch", table_name="batch_events")
    op.drop_table("batch_events")
    op.drop_index(
        "ix_batches_live",
        table_name="batches",
        postgresql_where=sa.text(
            "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"
        ),
    )
    op.drop_index("ix_batches_listing", table_name="batches")
    op.drop_index(op.f("ix_batches_input_file_id"), table_name="batches")
    op.drop_table("batches")
    op.drop_table("usage")
    op.drop_index("ix_files_listing", table_name="files")
    op.drop_table("files")
    op.drop_index(op.f("ix_api_keys_project_id"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_table("projects")
    op.drop_table("engines")
    op.drop_table("dispatchers")
