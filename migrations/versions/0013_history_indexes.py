"""Indexes that keep the cost of what is live apart from what has ended."""

from __future__ import annotations

import sqlalchemy as sa

from migrations import indexes

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_ENDED_AT = "COALESCE(completed_at, failed_at, expired_at, cancelled_at)"
_GONE_AT = "LEAST(deleted_at, expires_at)"
_MADE = (
    ("ix_batches_ended", "batches"),
    ("ix_batches_past", "batches"),
    ("ix_batches_output_file_id", "batches"),
    ("ix_batches_error_file_id", "batches"),
    ("ix_files_gone", "files"),
    ("ix_files_collected", "files"),
    ("ix_webhook_deliveries_batch_event_id", "webhook_deliveries"),
)


def upgrade() -> None:
    indexes.create(
        "ix_batches_ended", "batches", [sa.text(_ENDED_AT)],
        where=sa.text(f"{_ENDED_AT} IS NOT NULL"),
    )  # fmt: skip
    indexes.create(
        "ix_batches_past", "batches", ["finalizing_at"],
        where=sa.text("status = 'completed' AND retry_of IS NULL AND num_completed >= 32"),
    )  # fmt: skip
    for kind in ("output_file_id", "error_file_id"):
        indexes.create(
            f"ix_batches_{kind}", "batches", [kind], where=sa.text(f"{kind} IS NOT NULL")
        )
    indexes.create(
        "ix_files_gone", "files", [sa.text(_GONE_AT)], where=sa.text("collected_at IS NULL")
    )
    indexes.create(
        "ix_files_collected", "files", ["collected_at"], where=sa.text("collected_at IS NOT NULL")
    )
    indexes.create("ix_webhook_deliveries_batch_event_id", "webhook_deliveries", ["batch_event_id"])


def downgrade() -> None:
    for name, table in _MADE:
        indexes.drop(name, table)
