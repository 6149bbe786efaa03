"""The stream of a page: what changed, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from batch.finish.finalize import finalize
from gateway.dashboard import events
from gateway.replica import Readings
from service.clock import SystemClock
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fixtures.batches import add_batch, add_validating, line
from tests.fixtures.dashboard import Site, make_site


class Watcher:
    """Reads a stream's messages."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def message(self) -> tuple[str, str]:
        """(event name, data) of the next message."""
        event, data = "", []
        async for text in self._lines:
            if text.startswith("event: "):
                event = text[7:]
            elif text.startswith("data: "):
                data.append(text[6:])
            elif not text and data:
                return event, "\n".join(data)
        raise EOFError

    async def until(self, word: str, limit_s: float = 8.0) -> str:
        """The first message whose data holds a word."""
        async with asyncio.timeout(limit_s):
            while True:
                _, data = await self.message()
                if word in data:
                    return data


@asynccontextmanager
async def watching(client: httpx.AsyncClient, query: str) -> AsyncIterator[Watcher]:
    async with client.stream("GET", f"/admin/events?{query}", timeout=20) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Watcher(response)


async def test_the_list_moves_by_itself(site: Site) -> None:
    database, store = site.bench.database, site.bench.file_store
    batch_id = await add_batch(database, store, [line(str(n)) for n in range(3)])
    async with site.admin() as client, watching(client, "view=batches") as watcher:
        first = await watcher.until("batches-list")
        assert "0 of 3" in first
        await site.bench.dispatch(FakeEngineClient(FakeEngine()))
        moved = await watcher.until("3 of 3")
        assert f'hx-target="#row-{batch_id}"' in moved
        assert "batches-list" not in moved
        new_id = await add_validating(database, store, [line("a")])
        grown = await watcher.until(new_id)
        assert 'hx-target="#batches-list"' in grown


async def test_the_retry_dialog_of_an_open_page_follows_the_end(site: Site) -> None:
    lines = [line("good"), line("bad", "fake:status=400"), line("worse", "fake:status=400")]
    batch_id = await add_batch(site.bench.database, site.bench.file_store, lines)
    async with (
        site.admin() as client,
        watching(client, f"view=batch&batch_id={batch_id}") as watcher,
    ):
        assert "Run the rows without an answer again?" in await watcher.until("batch-retry")
        await site.bench.dispatch(FakeEngineClient(FakeEngine()))
        assert await finalize(site.bench.database, site.bench.file_store, batch_id)
        said = await watcher.until("Run 2 rows again?")
        assert 'hx-target="#batch-retry"' in said
        assert "will fail again" in said


async def test_a_batch_s_page_moves_and_says_a_new_status(site: Site) -> None:
    batch_id = await add_batch(site.bench.database, site.bench.file_store, [line("a")])
    async with (
        site.admin() as client,
        watching(client, f"view=batch&batch_id={batch_id}") as watcher,
    ):
        await watcher.until("batch-progress")
        page = (await client.get(f"/admin/batches/{batch_id}")).text
        token = page.split('name="csrf_token" value="')[1].split('"')[0]
        await client.post(f"/admin/batches/{batch_id}/cancel", data={"csrf_token": token})
        said = await watcher.until("announcer")
        assert "input.jsonl: cancelling." in said


async def test_engines_are_watched(database: Database) -> None:
    engine = FakeEngine(FakeSettings(model="watched-model"))
    async with (
        make_site(database, FakeEngineClient(engine)) as site,
        site.admin() as client,
        watching(client, "view=engines") as watcher,
    ):
        assert "watched-model" in await watcher.until("engines-list")
        engine.down = True
        assert "not answering" in await watcher.until("not answering")


async def test_a_revoked_key_ends_the_stream(site: Site) -> None:
    async with site.admin() as client, watching(client, "view=batches") as watcher:
        async with site.bench.database.unit_of_work() as session:
            await keys.revoke(session, site.key_id)
        async with asyncio.timeout(8):
            while (await watcher.message())[0] != "session-over":
                pass
            with pytest.raises(EOFError):
                await watcher.message()


async def test_a_gateway_that_stops_ends_its_streams(site: Site) -> None:
    async with site.admin() as client, watching(client, "view=batches") as watcher:
        await watcher.message()
        site.app.state.stopping = True
        async with asyncio.timeout(4):
            with pytest.raises(EOFError):
                await watcher.message()


async def test_a_database_that_goes_away_is_said_and_outlived(site: Site) -> None:
    database = site.bench.database
    async with site.admin() as client, watching(client, "view=batches") as watcher:
        await watcher.message()
        lost = Database("postgresql+psycopg://app@127.0.0.1:1/app")
        site.app.state.database = lost
        site.app.state.readings = Readings(lost, None, SystemClock())
        assert "does not answer" in await watcher.until("trouble")
        site.app.state.database = database
        site.app.state.readings = Readings(database, None, SystemClock())
        assert "hidden" in await watcher.until("trouble")


async def test_one_key_may_have_so_many_pages_open(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS", 2)
    async with site.admin() as client:
        async with watching(client, "view=batches"), watching(client, "view=engines"):
            refused = await client.get("/admin/events?view=batches")
            assert refused.status_code == 429
        async with asyncio.timeout(8.0):
            while True:
                async with client.stream("GET", "/admin/events?view=batches") as again:
                    if again.status_code == 200:
                        break
                await asyncio.sleep(0.05)


async def test_a_stream_of_nothing_is_refused(site: Site) -> None:
    wrong = {"view=batch&batch_id=batch_nowhere": 404, "view=secrets": 404, "": 404}
    async with site.admin() as client:
        for query, status in wrong.items():
            assert (await client.get(f"/admin/events?{query}")).status_code == status, query
