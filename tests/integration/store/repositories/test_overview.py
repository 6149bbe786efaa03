"""The dashboard's queries against real Postgres."""

from __future__ import annotations

from batch.finish.finalize import finalize
from store.repositories import batch_browser, event, overview
from store.repositories.batch_browser import BatchFilter
from store.session import Database
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import Bench, add_batch, add_validating, line


async def test_pages_go_from_newest_to_oldest_without_a_gap(database: Database) -> None:
    store = Bench(database).file_store
    ids = [await add_validating(database, store, [line("a")]) for _ in range(5)]
    seen: list[str] = []
    after = None
    async with database.unit_of_work() as session:
        while True:
            page, has_more = await batch_browser.page(
                session, "org_default", BatchFilter(), after=after, limit=2
            )
            seen += [one.batch.id for one in page]
            after = seen[-1]
            if not has_more:
                break
        unknown, _ = await batch_browser.page(
            session, "org_default", BatchFilter(), after="batch_gone", limit=2
        )
    assert seen == ids[::-1]
    assert [one.batch.id for one in unknown] == ids[:2:-1]


async def test_totals_count_statuses_and_open_rows(database: Database) -> None:
    store = Bench(database).file_store
    await add_validating(database, store, [line("a")])
    await add_batch(database, store, [line(str(n)) for n in range(7)])
    async with database.unit_of_work() as session:
        totals = await overview.totals(session, "org_default")
    assert (totals.all, totals.of("live"), totals.of("done"), totals.open_rows) == (2, 2, 0, 7)


async def test_an_ended_batch_in_figures(database: Database) -> None:
    bench = Bench(database)
    lines = [line(f"r{n}", "fake:status=400" if n in (3, 7) else "fake:text=a") for n in range(40)]
    batch_id = await add_batch(database, bench.file_store, lines)
    await bench.dispatch(FakeEngineClient(FakeEngine()))
    await finalize(database, bench.file_store, batch_id)
    async with database.unit_of_work() as session:
        found = await overview.one(session, "org_default", batch_id)
        assert found is not None
        points = await overview.progress(session, found.batch, max_points=10)
        failed = await overview.failed_rows(session, found.batch, limit=1)
        all_failed = await overview.failed_rows(session, found.batch, limit=9)
        events = await event.last(session, batch_id, limit=2)
    assert (found.batch.num_completed, found.batch.num_failed, found.num_running) == (38, 2, 0)
    assert len(points) <= 11
    assert points[-1].num_finished == 40
    assert [p.num_finished for p in points] == sorted(p.num_finished for p in points)
    assert {row.custom_id for row in all_failed} == {"r3", "r7"}
    assert failed[0] == all_failed[0]
    assert [one.event for one in events] == ["finalizing", "completed"]
