"""Queries about the history of the service: figures per series, subject and step of time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

STEPS: Final[Mapping[int, int]] = {
    10: 3600,
    60: 86_400,
    600: 14 * 86_400,
    7200: 14 * 86_400,
}
"""Length of a step -> how long steps of that length are kept; both in seconds."""

WRITER: Final = "engines"


@dataclass(frozen=True, slots=True)
class Figures:
    """What is to be added to a series, or what was found of it."""

    series: str
    subject: str
    figures: Sequence[float]


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of a series over the step that began at `at_s` (Unix seconds)."""

    at_s: int
    series: str
    subject: str
    figures: Sequence[float]


MAX_FIGURES: Final = 64
"""No series has more."""

# Figures are added up place by place. To unnest them first takes four times as long (0.9 s, not
# 0.2 s, for 32,000 steps of 40 figures). A place that no step has is NULL, and goes: only the last
# ones are.
_SUM_BY_PLACE: Final = ", ".join(f"sum(figures[{place}])" for place in range(1, MAX_FIGURES + 1))
_POINTS: Final = text(
    f"""
    SELECT at_s, series, subject, array_remove(ARRAY[{_SUM_BY_PLACE}], NULL) AS figures
    FROM (SELECT extract(epoch FROM began_at)::bigint AS at_s, series,
                 CASE WHEN series <> ALL(CAST(:together AS text[])) THEN subject ELSE '' END
                   AS subject,
                 figures
          FROM history_points
          WHERE step_s = :step_s AND series = ANY(CAST(:series AS text[]))
            AND began_at > statement_timestamp() - make_interval(secs => :span_s)) AS steps
    GROUP BY at_s, series, subject ORDER BY at_s, series, subject
    """
)


async def add(session: AsyncSession, new: Sequence[Figures]) -> None:
    """Add figures to the step of now, in every length of steps (the database's clock)."""
    # One order for everybody: two writers of the same steps cannot lock each other out.
    for one in sorted(new, key=lambda each: (each.series, each.subject)):
        await session.execute(
            text(
                """
                INSERT INTO history_points AS h (step_s, began_at, series, subject, figures)
                SELECT step_s,
                       to_timestamp(floor(extract(epoch FROM statement_timestamp()) / step_s)
                                    * step_s),
                       :series, :subject, CAST(:figures AS float8[])
                FROM unnest(CAST(:steps AS int[])) AS step_s ORDER BY step_s
                ON CONFLICT (step_s, began_at, series, subject) DO UPDATE
                SET figures = ARRAY(
                  SELECT coalesce(a, 0) + coalesce(b, 0)
                  FROM unnest(h.figures, excluded.figures) WITH ORDINALITY AS f(a, b, place)
                  ORDER BY place)
                """
            ),
            {
                "series": one.series,
                "subject": one.subject,
                "figures": [float(figure) for figure in one.figures],
                "steps": [*STEPS],
            },
        )


async def points(
    session: AsyncSession,
    step_s: int,
    *,
    span_s: int,
    series: Sequence[str],
    together: Sequence[str] = (),
) -> list[Point]:
    """What is known of some series over the last `span_s`, oldest first.

    Args:
        session: An open transaction.
        step_s: Steps that are read.
        span_s: How far back.
        series: Which.
        together: Those whose subjects are added up; they come with an empty subject.
    """
    found = await session.execute(
        _POINTS,
        {
            "step_s": step_s,
            "span_s": span_s,
            "series": [*series],
            "together": [*together],
        },
    )
    return [Point(**row) for row in found.mappings()]


async def collect(session: AsyncSession) -> None:
    """Forget what is older than its length of steps is kept."""
    for step_s, kept_s in STEPS.items():
        await session.execute(
            text(
                "DELETE FROM history_points WHERE step_s = :step_s"
                " AND began_at < statement_timestamp() - make_interval(secs => :kept_s)"
            ),
            {"step_s": step_s, "kept_s": kept_s},
        )


async def hold(session: AsyncSession, owner: str, *, stale_s: float) -> dict[str, Any] | None:
    """Be the writer until this transaction ends; what was seen last, or none if another one is.

    Args:
        session: An open transaction.
        owner: The process that asks.
        stale_s: Another one's silence after which it is taken for gone.
    """
    await session.execute(
        text(
            "INSERT INTO history_writers (name, owner, seen) VALUES (:name, :owner, '{}')"
            " ON CONFLICT (name) DO NOTHING"
        ),
        {"name": WRITER, "owner": owner},
    )
    seen = await session.scalar(
        text(
            """
            UPDATE history_writers SET owner = :owner, beat_at = statement_timestamp()
            WHERE name = :name AND (owner = :owner OR owner = '' OR
              beat_at < statement_timestamp() - make_interval(secs => :stale_s))
            RETURNING seen
            """
        ),
        {"name": WRITER, "owner": owner, "stale_s": stale_s},
    )
    return None if seen is None else dict(seen)


async def remember(session: AsyncSession, seen: Mapping[str, Any], *, owner: str) -> None:
    """What the writer has seen by now; in the transaction that holds and writes.

    Args:
        session: An open transaction.
        seen: For whoever writes next.
        owner: The writer; empty: it ends, and whoever comes may take its place.
    """
    await session.execute(
        text(
            "UPDATE history_writers SET seen = CAST(:seen AS jsonb), owner = :owner"
            " WHERE name = :name"
        ),
        {"seen": json.dumps(seen), "owner": owner, "name": WRITER},
    )
