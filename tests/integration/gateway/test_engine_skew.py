"""Engines one version behind or ahead say less or more: what is known of it is read."""

from __future__ import annotations

from typing import Any

import pytest

from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line
from tests.integration.gateway.conftest import Online

LATER: dict[str, Any] = {
    "spoken": {"by": "a later version", "steps": [1, 2]},
    "slo": {"ttft_s": 0.5, "tbt_s": 0.1, "first_word_s": 0.2},
    "attained": {"ttft": {"p99_s": 0.3, "spread": [0.1]}, "patience": None},
    "isolation": {"with_offline": {"ttft": {"p50_s": 0.1, "later": {}}}, "pauses": {"later": 1}},
    "step_times": {"errors": {"decode": 0.01, "warp": 0.02}, "later": True},
    "profile": {"state": "a state that is not known yet"},
    "token_costs": {"prompt_s": 0.0001, "answer_s": 0.01, "image_s": 0.1},
    "by_batch": {},
}
EARLIER: dict[str, Any] = {}
"""The plugin's name and the live ids: what the first version said."""


@pytest.mark.parametrize("said", [EARLIER, LATER], ids=["earlier", "later"])
async def test_the_service_reads_what_it_knows(
    online: Online, database: Database, said: dict[str, Any]
) -> None:
    online.engine.report = said
    await online.app.state.engines.probe()
    client = HttpEngineClient(online.app.state.engines.members[0].url)
    facts = await client.facts()
    assert facts.plugin_is_live
    assert facts.model == online.model
    async with online.http() as http:
        for stream in (False, True):
            body = online.chat("fake:tokens=3", stream=stream)
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        for path in ("/metrics", "/statusz", "/readyz", "/v1/models"):
            assert (await http.get(path)).status_code == 200, path
    bench = Bench(database)
    lines = [
        line(f"r{number}").replace(b"fake-model", online.model.encode()) for number in range(5)
    ]
    await add_batch(database, bench.file_store, lines, model=online.model)
    ending = await bench.dispatch(client)
    assert (ending.num_written, ending.num_fenced) == (5, 0)
    await client.close()
