"""What `/metrics` says of webhooks."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from store.session import Database
from tests.fixtures.receiver import receiving
from tests.fixtures.webhooks import add_endpoint, deliver_now, end_batch
from tests.integration.gateway.conftest import Online


async def _read(online: Online) -> dict[str, float]:
    async with online.http() as http:
        text = (await http.get("/metrics")).text
    return {
        sample.name + "".join(f":{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("coserve_webhook")
    }


async def test_what_waits_and_what_fails_is_counted(online: Online, database: Database) -> None:
    assert await _read(online) == {
        "coserve_webhooks_pending": 0,
        "coserve_webhooks_oldest_seconds": 0,
        "coserve_webhook_endpoints:failing": 0,
        "coserve_webhook_endpoints:disabled": 0,
    }
    async with receiving(status=500) as receiver:
        await add_endpoint(database, receiver.url)
        await end_batch(database)
        await deliver_now(database)
    found = await _read(online)
    assert found["coserve_webhooks_pending"] == 1
    assert 0 < found["coserve_webhooks_oldest_seconds"] < 60
    assert found["coserve_webhook_endpoints:failing"] == 1
    assert found["coserve_webhook_endpoints:disabled"] == 0


async def test_without_a_database_nothing_is_known(online: Online) -> None:
    good = online.app.state.database
    online.app.state.database = Database("postgresql+psycopg://app@127.0.0.1:1/app")
    try:
        found = await _read(online)
    finally:
        online.app.state.database = good
    assert found == {}
