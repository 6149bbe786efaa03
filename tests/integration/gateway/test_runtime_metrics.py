"""What the runtime inside an engine says about itself, as `/metrics` of the gateway tells it."""

from __future__ import annotations

from tests.integration.gateway.conftest import Online


async def scraped(online: Online) -> str:
    async with online.http() as http:
        return (await http.get("/metrics")).text


async def test_metrics_follow_the_report(online: Online) -> None:
    pool = online.app.state.engines
    name = f'coserve_runtime_parked_requests{{engine="{pool.members[0].url}"}}'
    assert name not in await scraped(online), "it reports none"
    for num_parked in (3, 0):
        online.engine.report = {"parked_requests": num_parked}
        await pool.probe()
        assert f"{name} {num_parked}.0" in await scraped(online)
