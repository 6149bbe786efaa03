"""After the last fault: nothing lost, nothing doubled, nothing leaked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import orjson

from tests.chaos.observer import Observer
from tests.chaos.proof import Findings, prove, wait_until_over
from tests.fixtures.receiver import Receiver
from tests.torture.tenants import Tenant

HEARD_LIMIT_S = 120.0
QUIET_LIMIT_S = 60.0


async def find_faults(
    tenants: Sequence[Tenant], observer: Observer, receiver: Receiver, journal: Path | None,
    files: Path,
) -> tuple[Findings, dict[str, int]]:  # fmt: skip
    """What the chaos suite proves, and by name how often each further promise was broken."""
    for tenant in tenants:
        await wait_until_over(tenant.feeder)
    findings = await prove([tenant.feeder for tenant in tenants], observer, journal)
    wrong = dict(findings.faults)
    wrong["ends of batches that were not told, or twice"] = await _untold(
        tenants, observer, receiver
    )
    wrong["objects of another project that were shown"] = await _foreign(tenants)
    wrong["lines not counted once in the usage"] = await _miscounted(tenants, observer)
    wrong["files without bytes"], wrong["bytes without a file"] = await _bytes(observer, files)
    wrong["rows and requests that are still held"] = await _held(observer)
    return findings, {name: num for name, num in wrong.items() if num}


async def _untold(tenants: Sequence[Tenant], observer: Observer, receiver: Receiver) -> int:
    """Deliveries that wait for their next attempt need not wait any longer."""
    wanted = {(f"/{one.name}", batch.id) for one in tenants for batch in one.feeder.batches}
    until_s = _now_s() + HEARD_LIMIT_S
    while True:
        await observer.ask("UPDATE webhook_deliveries SET next_at = now() WHERE status = 'pending'")
        told = _told(receiver)
        if wanted <= told.keys() or _now_s() > until_s:
            break
        await asyncio.sleep(1.0)
    twice = sum(num > 1 for num in told.values())
    return len(wanted ^ told.keys()) + twice


def _told(receiver: Receiver) -> Counter[tuple[str, str]]:
    """How many different events came for a batch; each may come more than once."""
    events = {
        (one.path, orjson.loads(one.body)["data"]["id"], one.webhook_id)
        for one in receiver.received
    }
    return Counter((path, batch_id) for path, batch_id, _ in events)


async def _foreign(tenants: Sequence[Tenant]) -> int:
    num = 0
    for tenant in tenants:
        own = {batch.id for batch in tenant.feeder.batches}
        shown = set()
        path = "/v1/batches?limit=100"
        while True:
            page = (await tenant.feeder.get(path)).json()
            shown |= {one["id"] for one in page["data"]}
            if not page["has_more"]:
                break
            path = f"/v1/batches?limit=100&after={page['last_id']}"
        num += len(own ^ shown)
    return num


async def _miscounted(tenants: Sequence[Tenant], observer: Observer) -> int:
    found = await observer.ask(
        "SELECT project_id, sum(num_requests)::int FROM usage"
        " WHERE request_class = 'offline' GROUP BY project_id"
    )
    counted = {str(project_id): int(num) for project_id, num in found}
    return sum(
        abs(
            counted.get(tenant.project_id, 0)
            - sum(len(batch.lines) for batch in tenant.feeder.batches)
        )
        for tenant in tenants
    )


async def _bytes(observer: Observer, folder: Path) -> tuple[int, int]:
    found = await observer.ask(
        "SELECT storage_key, coalesce(array_length(part_bytes, 1), 1) FROM files"
        " WHERE collected_at IS NULL"
    )
    listed = {
        str(key) if number == 1 else f"{key}-{number}"
        for key, num_parts in found
        for number in range(1, num_parts + 1)
    }
    # An upload that was cut off is known by its arrival, and collected a day later.
    arrived = {str(key) for (key,) in await observer.ask("SELECT storage_key FROM arrivals")}
    stored = {path.name for path in (folder / "objects").rglob("*") if path.is_file()}
    return len(listed - stored), len(stored - listed - arrived)


async def _held(observer: Observer) -> int:
    until_s = _now_s() + QUIET_LIMIT_S
    while (held := (await observer.at_engine()) + (await observer.num_leased())) > 0:
        if _now_s() > until_s:
            break
        await asyncio.sleep(0.2)
    return held


def _now_s() -> float:
    return asyncio.get_running_loop().time()
