"""What dispatchers count, as `/metrics` of any gateway tells it."""

from __future__ import annotations

import re

from batch.run.dispatch import DispatchLimits
from engine_adapter.client.http import HttpEngineClient
from store.repositories import dispatch_count
from store.repositories.dispatch_count import DispatchCounts
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import MODEL, Bench, add_batch, line
from tests.integration.gateway.conftest import Online


async def scraped(online: Online) -> dict[str, float]:
    async with online.http() as http:
        text = (await http.get("/metrics")).text
    return {name: float(value) for name, value in re.findall(r"^(coserve_\S+) (\S+)$", text, re.M)}


async def test_a_batch_is_counted(online: Online, database: Database) -> None:
    bench = Bench(database)
    lines = [line(f"r{n}") for n in range(20)]
    lines.append(line("bad", "fake:status=500"))
    await add_batch(database, bench.file_store, lines)
    backlog = f'{{model="{MODEL}"}}'
    before = await scraped(online)
    assert before[f"coserve_batch_unfinished_rows{backlog}"] == 21
    assert before[f"coserve_batch_unfinished_batches{backlog}"] == 1
    assert before[f"coserve_batch_lag_seconds{backlog}"] > 0

    async with serving(FakeEngine(FakeSettings())) as url:
        client = HttpEngineClient(url)
        for _ in range(2):  # the second one finds nothing to do, and counts nothing anew
            await bench.dispatch(client, limits=DispatchLimits(max_attempts=2))
        await client.close()
    after = await scraped(online)
    engine = f'{{engine="{url}"}}'
    assert after[f"coserve_dispatch_claimed_rows_total{engine}"] == 22
    assert after[f"coserve_dispatch_results_total{engine}"] == 21
    assert after[f"coserve_dispatch_retries_total{engine}"] == 1
    assert after[f"coserve_dispatch_fenced_results_total{engine}"] == 0
    assert after[f"coserve_dispatch_refused_calls_total{engine}"] == 0
    assert after[f"coserve_dispatch_in_flight_rows{engine}"] == 0
    assert f"coserve_dispatch_heartbeat_age_seconds{engine}" not in after, "none is at work"
    assert f"coserve_batch_unfinished_rows{backlog}" not in after


async def test_a_dispatcher_at_work_shows_its_state(online: Online, database: Database) -> None:
    held = await Bench(database).lease("http://engine")
    state = DispatchCounts(num_results=3, num_in_flight=7, num_unwritten=2, window_rows=64)
    async with database.unit_of_work() as session:
        await dispatch_count.add(session, held.engine_url, state)
        await dispatch_count.add(session, held.engine_url, state)
    found = await scraped(online)
    assert found['coserve_dispatch_results_total{engine="http://engine"}'] == 6
    assert found['coserve_dispatch_in_flight_rows{engine="http://engine"}'] == 7
    assert found['coserve_dispatch_window_rows{engine="http://engine"}'] == 64
    assert found['coserve_dispatch_unwritten_outcomes{engine="http://engine"}'] == 2
    assert found['coserve_dispatch_heartbeat_age_seconds{engine="http://engine"}'] < 60
    await held.give_back()
    assert (await scraped(online))['coserve_dispatch_in_flight_rows{engine="http://engine"}'] == 0
