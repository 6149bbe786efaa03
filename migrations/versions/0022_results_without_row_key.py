"""A result is written by one statement that holds its row: no key is looked up to prove it.

Code of the version before removes rows in the belief that their results go with them. Those of a
whole batch still do, by its key.
"""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_constraint(op.f("fk_row_results_row_id"), "row_results", type_="foreignkey")


def downgrade() -> None:
    op.execute(
        "DELETE FROM row_results r"
        " WHERE NOT EXISTS (SELECT 1 FROM batch_rows b WHERE b.id = r.row_id)"
    )
    op.create_foreign_key(
        op.f("fk_row_results_row_id"),
        "row_results",
        "batch_rows",
        ["row_id"],
        ["id"],
        ondelete="CASCADE",
    )
