"""One act on many batches, as a browser without scripts sends it."""

from __future__ import annotations

import httpx

from batch.finish.cancel import cancel
from batch.queue import STAGES
from store.models import DEFAULT_PROJECT_ID, Batch
from tests.fixtures.batches import add_batch, events_of, line, read_batch
from tests.fixtures.dashboard import Site, token_in


async def act(client: httpx.AsyncClient, word: str, *batches: str) -> httpx.Response:
    token = token_in((await client.get("/admin/batches")).text)
    fields = {"csrf_token": token, "act": word, "batch": [*batches], "kept": "search=x.jsonl"}
    return await client.post("/admin/batches/acts", data=fields)


async def test_those_that_were_ticked_are_acted_on(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    one, two, other = [await add_batch(database, store, [line(f"r{n}")]) for n in range(3)]
    over = await add_batch(database, store, [line("r")])
    async with database.unit_of_work() as session:
        await cancel(session, DEFAULT_PROJECT_ID, over)
    async with site.admin() as client:
        done = await act(client, "pause", one, two, over, "batch_unknown")
        assert (done.status_code, done.headers["location"]) == (
            303,
            "/admin/batches?search=x.jsonl",
        )
        for batch_id, paused in ((one, True), (two, True), (other, False)):
            assert ((await read_batch(database, batch_id)).paused_at is not None) is paused
        await act(client, "first", one)
        assert (await read_batch(database, one)).priority == 100
        await act(client, "resume", one, two)
        assert (await read_batch(database, two)).paused_at is None
        site.bench.queue.take()
        await act(client, "cancel", one, two)
        assert [(await read_batch(database, one)).status] == ["cancelling"]
        assert STAGES in site.bench.queue.take()
        assert (await act(client, "explode", other)).status_code == 400
    assert (await events_of(database, one))[-4:] == [
        "paused",
        "priority_changed",
        "resumed",
        "cancelling",
    ]


async def test_nothing_without_the_token(site: Site) -> None:
    batch_id = await add_batch(site.bench.database, site.bench.file_store, [line("a")])
    async with site.admin() as client:
        refused = await client.post("/admin/batches/acts", data={"act": "pause", "batch": batch_id})
        assert refused.status_code == 403
    assert (await read_batch(site.bench.database, batch_id)).paused_at is None


async def test_all_that_match_the_filter_are_acted_on(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    matching = [await add_batch(database, store, [line(f"r{n}")]) for n in range(30)]
    other = await add_batch(database, store, [line("r")])
    async with database.unit_of_work() as session:
        for batch_id in matching:
            (await session.get_one(Batch, batch_id)).model = "one-model"
        await cancel(session, DEFAULT_PROJECT_ID, matching[0])
    async with site.admin() as client:
        token = token_in((await client.get("/admin/batches")).text)
        fields = {"csrf_token": token, "act": "pause", "all": "1", "kept": "model=one-model"}
        done = await client.post("/admin/batches/acts", data=fields)
        assert (done.status_code, done.headers["location"]) == (
            303,
            "/admin/batches?model=one-model",
        )
    paused = [(await read_batch(database, one)).paused_at is not None for one in matching]
    assert paused == [False, *[True] * 29], "more than a page; not what is over"
    assert (await read_batch(database, other)).paused_at is None
