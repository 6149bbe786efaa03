"""The tables of release 0.2.

Its number is above those of the thirty-one migrations that led here, so that their code takes
these tables for newer ones and works on them. A database that those migrations brought to the same
tables counts as being here (`store.schema.reached`).
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

TABLES = Path(__file__).parents[1] / "release_0_2.sql"


def upgrade() -> None:
    op.execute(TABLES.read_text("utf-8"))


def downgrade() -> None:
    raise NotImplementedError("Nothing is left of what was before 0.2: restore a backup.")
