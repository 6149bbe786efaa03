"""Runs of the workers' stages are counted, good and bad ones."""

from __future__ import annotations

import pytest

from batch.worker.stages import counted
from store.repositories import stage_count
from store.session import Database


async def test_runs_are_counted_with_what_they_took(database: Database) -> None:
    async with counted("sweep", database):
        pass
    with pytest.raises(RuntimeError, match="of the stage"):
        async with counted("sweep", database):
            raise RuntimeError("of the stage")
    async with database.unit_of_work() as session:
        (one,) = await stage_count.totals(session)
    assert (one.stage, one.num_runs, one.num_failed) == ("sweep", 2, 1)
    assert one.wall_s > 0
    assert one.peak_rss_bytes > 1_000_000
    assert one.ended_age_s >= 0


async def test_a_lost_database_does_not_fail_the_stage() -> None:
    lost = Database("postgresql+psycopg://app@127.0.0.1:1/app")
    ran = False
    async with counted("sweep", lost):
        ran = True
    assert ran
