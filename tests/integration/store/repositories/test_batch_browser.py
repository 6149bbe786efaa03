"""The list of batches: what a filter leaves, and that every order is paged without a gap."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import select, text, update

from store.models import Batch
from store.repositories import batch_browser
from store.repositories.batch_browser import ORDERS, BatchFilter
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, add_project, add_validating, line, read_batch


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
    column, downwards = ORDERS[order].column, ORDERS[order].downwards
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


async def test_a_search_looks_at_the_newest_batches_however_many_there_are(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_browser, "MAX_SEARCHED", 50)
    store = Bench(database).file_store
    await add_project(database, "proj_other")
    oldest = await add_batch(database, store, [line("only-this")], model="wanted-model")
    theirs = await add_batch(database, store, [line("a")], project_id="proj_other")
    columns = "project_id, endpoint, completion_window, input_file_id, model, status, expires_at"
    async with database.unit_of_work() as work:
        for source, begun in ((oldest, 2), (theirs, 2000)):
            await work.execute(
                text(
                    f"INSERT INTO batches (id, created_at, {columns})"
                    f" SELECT 'batch_copy' || n || project_id, created_at + n * interval '1 s',"
                    f" {columns} FROM batches, generate_series({begun}, {begun} + 1500) n"
                    " WHERE id = :id"
                ),
                {"id": source},
            )
    found = await listed(database, BatchFilter(search="wanted"))
    assert found == [], "fifty others are newer"
    assert len(await listed(database, BatchFilter(search="batch_copy"))) == 50
    file_id = (await read_batch(database, oldest)).input_file_id
    for whole in (oldest, "only-this", file_id):
        assert oldest in await listed(database, BatchFilter(search=whole, order="oldest"))
    looked_at = select(Batch.id).where(batch_browser._matches("nowhere", "org_default"))
    compiled = looked_at.compile(
        dialect=database.engine.dialect, compile_kwargs={"literal_binds": True}
    )
    async with database.snapshot() as work:
        plan = "\n".join(
            (await work.execute(text(f"EXPLAIN ANALYZE {compiled}".replace(":", "\\:")))).scalars()
        )
    # Every word of a batch is compared in one place: what is not like it falls out there.
    (removed,) = re.findall(r"strpos.*\n *Rows Removed by (?:Join )?Filter: (\d+)", plan)
    assert int(removed) == 50, plan
