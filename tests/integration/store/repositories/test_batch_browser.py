"""The list of batches: what a filter leaves, and that every order is paged without a gap."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from store.models import Batch
from store.repositories import batch_browser
from store.repositories.batch_browser import ORDERS, BatchFilter
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, add_project, add_validating, line


async def listed(database: Database, wanted: BatchFilter) -> list[str]:
    async with database.snapshot() as work:
        found, _ = await batch_browser.page(work, "org_default", wanted, after=None, limit=50)
    return [one.batch.id for one in found]


@pytest.mark.parametrize("order", ORDERS)
async def test_every_order_is_paged_without_a_gap(database: Database, order: str) -> None:
    store = Bench(database).file_store
    ids = [await add_validating(database, store, [line("a")]) for _ in range(7)]
    async with database.unit_of_work() as work:
        for number, batch_id in enumerate(ids):
            changed = {"priority": number % 3, "num_total": number % 2}
            await work.execute(update(Batch).where(Batch.id == batch_id).values(**changed))
    seen: list[Batch] = []
    more = True
    while more:
        async with database.snapshot() as work:
            page, more = await batch_browser.page(
                work,
                "org_default",
                BatchFilter(order=order),
                after=seen[-1].id if seen else None,
                limit=2,
            )
        seen += [one.batch for one in page]
    assert sorted(one.id for one in seen) == sorted(ids)
    _, column, downwards = ORDERS[order]
    values = [getattr(one, column.key) for one in seen]
    assert values == sorted(values, reverse=downwards)


async def test_filters_leave_what_they_say(database: Database) -> None:
    store = Bench(database).file_store
    project = await add_project(database, "proj_other")
    plain = await add_validating(database, store, [line("a")])
    theirs = await add_batch(database, store, [line("a")], project_id=project)
    other = await add_batch(database, store, [line("a")], model="other-model")
    async with database.unit_of_work() as work:
        await work.execute(update(Batch).where(Batch.id == plain).values(endpoint="/v1/embeddings"))
    assert await listed(database, BatchFilter()) == [other, theirs, plain]
    assert await listed(database, BatchFilter(project=project)) == [theirs]
    assert await listed(database, BatchFilter(model="other-model")) == [other]
    assert await listed(database, BatchFilter(endpoint="/v1/embeddings")) == [plain]
    assert await listed(database, BatchFilter(group="validating")) == [plain]
    assert await listed(database, BatchFilter(group="live")) == [other, theirs, plain]
    assert await listed(database, BatchFilter(group="completed", model="other-model")) == []
    async with database.snapshot() as work:
        assert "other-model" in await batch_browser.models(work, "org_default")
        assert await batch_browser.models(work, "org_elsewhere") == []


def test_words_that_mean_nothing_are_as_good_as_none() -> None:
    wanted = BatchFilter(group="nonsense", order="sideways", search="x")
    assert wanted.words() == {"search": "x"}
    assert BatchFilter(group="live", order="due").words() == {"group": "live", "order": "due"}
