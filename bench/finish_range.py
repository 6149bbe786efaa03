"""How good a batch's predicted finish is, and whether it settles.

    python -m bench.finish_range

A batch of 20,000 rows runs at the pace of an engine that gives way to chat: steady, in bursts of
chat, with a day's course, with answers that grow longer. The times of its results are simulated;
they stand in a real Postgres, and every 20 s the service's own queries and rules predict the end,
by a clock that the benchmark sets. Said of each course, over all predictions after the first
minute: the median error as a share of the time left, how often the time left doubles within a
minute, how often the range holds the real end, and how wide it is.

Quoted in batch/extension.py, of whose `RANGE_MARGIN` it is the reason.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from batch.extension import extend
from bench.report import Target, at_least, at_most, option_parser, report, scratch_folder
from bench.servers import postgres_url
from store.models import DEFAULT_PROJECT_ID, Batch
from store.repositories import progress
from store.session import Database

NUM_ROWS, MEAN_PACE = 20_000, 5.0
TICK_S, WRITE_S, MINUTE_TICKS = 20.0, 1.0, 3
SEEDS = (24, 25, 26)
"""Others than those that the rule was made with."""
BEGAN_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
MAX_DOUBLED, MIN_HELD = 0.01, 0.8

Pace = Callable[[float], float]
"""Rows per second at a time since the start."""


def steady(chance: random.Random) -> Pace:
    """Nothing else runs."""
    del chance
    return lambda _: MEAN_PACE


def bursts(chance: random.Random) -> Pace:
    """Chat comes for a minute and leaves for one, on average; little is left over meanwhile."""
    changes, at_s = [0.0], 0.0
    while at_s < 10 * NUM_ROWS / MEAN_PACE:
        at_s += chance.expovariate(1 / 60)
        changes.append(at_s)

    def pace(at_s: float) -> float:
        while len(changes) > 1 and changes[1] <= at_s:
            changes.pop(0)
            pace_now[0] = not pace_now[0]
        return MEAN_PACE * (1.6 if pace_now[0] else 0.4)

    pace_now = [True]
    return pace


def day(chance: random.Random) -> Pace:
    """What chat leaves over comes and goes in the course of two hours."""
    phase = chance.uniform(0, 2 * math.pi)
    return lambda at_s: MEAN_PACE * (1 + 0.6 * math.sin(2 * math.pi * at_s / 7200 + phase))


def longer(chance: random.Random) -> Pace:
    """The last answers take twice as long as the first."""
    del chance
    return lambda at_s: MEAN_PACE * (1.4 - 0.7 * min(1.0, at_s * MEAN_PACE / NUM_ROWS))


COURSES: dict[str, Callable[[random.Random], Pace]] = {
    "steady": steady,
    "bursts": bursts,
    "day": day,
    "longer": longer,
}


@dataclass(frozen=True)
class Prediction:
    """What was said at one time, in seconds left; and what came true."""

    left_s: float
    really_s: float
    earliest_s: float
    latest_s: float


def written(course: str, seed: int) -> list[float]:
    """When each result is written, in seconds since the start: those of a second together."""
    chance = random.Random(seed)
    pace, times, at_s, due = COURSES[course](chance), list[float](), 0.0, 0.0
    while len(times) < NUM_ROWS:
        at_s += WRITE_S
        due += max(0.0, chance.gauss(pace(at_s), math.sqrt(pace(at_s)))) * WRITE_S
        while due >= 1 and len(times) < NUM_ROWS:
            times.append(at_s)
            due -= 1
    return times


async def prepare(session: AsyncSession, times: list[float]) -> None:
    """The batch with all its results; how many of them count is said at each time."""
    for statement in (
        "DELETE FROM batches",
        "CREATE SCHEMA IF NOT EXISTS replay",
        "CREATE TABLE IF NOT EXISTS replay.clock (at timestamptz)",
        "DELETE FROM replay.clock",
        "INSERT INTO replay.clock VALUES (now())",
        "CREATE OR REPLACE FUNCTION replay.statement_timestamp() RETURNS timestamptz"
        " LANGUAGE sql STABLE AS 'SELECT at FROM replay.clock'",
        "INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256, storage_key)"
        f" VALUES ('file-1', '{DEFAULT_PROJECT_ID}', 'batch', 'f', 5000, '', 'k')"
        " ON CONFLICT DO NOTHING",
    ):
        await session.execute(text(statement))
    await session.execute(
        text(
            "INSERT INTO batches (id, project_id, endpoint, completion_window, input_file_id,"
            " model, status, num_total, created_at, in_progress_at, expires_at)"
            " VALUES ('batch_1', :project, '/v1/chat/completions', '7d', 'file-1', 'm',"
            " 'in_progress', :rows, :at, :at, :ends)"
        ),
        {
            "project": DEFAULT_PROJECT_ID,
            "rows": NUM_ROWS,
            "at": BEGAN_AT,
            "ends": BEGAN_AT + timedelta(days=7),
        },
    )
    await session.execute(
        text(
            "INSERT INTO row_results (row_id, batch_id, seq, succeeded, line, created_at)"
            " SELECT seq, 'batch_1', seq, true, '', :at + make_interval(secs => s)"
            " FROM unnest(CAST(:times AS float8[])) WITH ORDINALITY t(s, seq)"
        ),
        {"at": BEGAN_AT, "times": times},
    )
    await session.execute(text("ANALYZE row_results"))
    await session.execute(text("SET LOCAL search_path = replay, pg_catalog, public"))


async def predictions(session: AsyncSession, times: list[float]) -> list[Prediction]:
    """What is said every 20 s; a gap of a minute where nothing is."""
    batch = await session.get_one(Batch, "batch_1")
    said, at_s, num_done = [], 60.0, 0
    while at_s < times[-1] - TICK_S:
        now = BEGAN_AT + timedelta(seconds=at_s)
        while times[num_done] <= at_s:
            num_done += 1
        batch.num_results = batch.num_completed = num_done
        await session.flush()
        await session.execute(text("UPDATE replay.clock SET at = :now"), {"now": now})
        reading = (await progress.read_batches(session, [batch.id]))[batch.id]
        service = await progress.read_service(session)
        found = extend(batch, reading, service, now=now, models_up={"m"})
        assert found.predicted_finish_at is not None
        ends = found.predicted_finish_range or (found.predicted_finish_at,) * 2
        left_s = [end - now.timestamp() for end in (found.predicted_finish_at, *ends)]
        said.append(Prediction(left_s[0], times[-1] - at_s, left_s[1], left_s[2]))
        at_s += TICK_S
    return said


async def measure(url: str) -> dict[str, list[list[Prediction]]]:
    """All predictions of every course and seed."""
    database = Database(url)
    said: dict[str, list[list[Prediction]]] = {}
    for course in COURSES:
        for seed in SEEDS:
            async with database.unit_of_work() as session:
                times = written(course, seed)
                await prepare(session, times)
                said.setdefault(course, []).append(await predictions(session, times))
    await database.dispose()
    return said


def main() -> int:
    """Run it all; 0 if every target was met."""
    option_parser(__doc__).parse_args()
    with scratch_folder() as folder, postgres_url(folder) as url:
        said = asyncio.run(measure(url))
    measured: dict[str, object] = {}
    targets: dict[str, Target] = {}
    for course, runs in said.items():
        every = [one for run in runs for one in run]
        pairs = [pair for run in runs for pair in zip(run, run[MINUTE_TICKS:], strict=False)]
        doubled = sum(later.left_s >= 2 * one.left_s for one, later in pairs)
        held = sum(one.earliest_s <= one.really_s <= one.latest_s for one in every)
        measured |= {
            f"{course}_predictions": len(every),
            f"{course}_median_error": round(
                median(abs(one.left_s - one.really_s) / one.really_s for one in every), 4
            ),
            f"{course}_doubled": round(doubled / len(pairs), 4),
            f"{course}_range_held": round(held / len(every), 4),
            f"{course}_range_width": round(
                median((one.latest_s - one.earliest_s) / one.really_s for one in every), 4
            ),
        }
        targets[f"{course}_doubled"] = at_most(MAX_DOUBLED)
        targets[f"{course}_range_held"] = at_least(MIN_HELD)
    return report("finish_range", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
