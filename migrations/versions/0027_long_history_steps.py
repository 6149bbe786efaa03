"""Steps of two hours in the history, for charts of 14 days; made from what is there."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_SUMS = ", ".join(f"sum(figures[{place}])" for place in range(1, 65))


def upgrade() -> None:
    # A gateway of the version before adds nothing to these steps: they lack what it writes from
    # now until it is replaced.
    op.execute(
        f"""
        INSERT INTO history_points (step_s, began_at, series, subject, figures)
        SELECT 7200, to_timestamp(floor(extract(epoch FROM began_at) / 7200) * 7200), series,
               subject, array_remove(ARRAY[{_SUMS}], NULL)
        FROM history_points WHERE step_s = 600 GROUP BY 1, 2, 3, 4
        ON CONFLICT (step_s, began_at, series, subject) DO NOTHING
        """
    )


def downgrade() -> None:
    op.execute("DELETE FROM history_points WHERE step_s = 7200")
