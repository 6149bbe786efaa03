"""Twenty owners, one batch each, all waiting when the engine comes up: do they advance alike?"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from bench.batch_load.one_batch import LIMIT_S
from bench.installation import client_of, create, database, new_projects, upload
from bench.report import jain
from tests.chaos.installation import Installation

NUM_OWNERS = 20
NUM_LINES = 1000
POLL_INTERVAL_S = 0.2
COUNTED_FROM = 0.05
"""Progress is compared once so much of the work is done: below, a single claim decides."""


def measure(installation: Installation) -> dict[str, Any]:
    """Create the batches while the engine is away, let it come up, watch them to their ends."""
    fake = installation.fake
    assert fake is not None
    fake.stop()
    batch_ids = []
    owners: dict[str, dict[str, int]] = {
        f"proj_owner{number:02d}": {} for number in range(NUM_OWNERS)
    }
    for key in asyncio.run(new_projects(installation, owners)).values():
        with client_of(installation, key) as client:
            batch_ids.append(create(client, upload(client, NUM_LINES)))
    with database(installation) as connection:
        progress = (
            "SELECT id, status, num_completed FROM batches WHERE id = ANY(%s)",
            (batch_ids,),
        )
        until = time.monotonic() + LIMIT_S
        while any(status == "validating" for _, status, _ in connection.execute(*progress)):
            if time.monotonic() > until:
                raise RuntimeError("not validated")
            time.sleep(POLL_INTERVAL_S)
        fake.start()
        indices: list[float] = []
        while time.monotonic() < until:
            seen = list(connection.execute(*progress))
            done = [num for _, _, num in seen]
            if sum(done) > COUNTED_FROM * NUM_OWNERS * NUM_LINES and max(done) < NUM_LINES:
                indices.append(jain(done))
            if all(status == "completed" for _, status, _ in seen):
                break
            time.sleep(POLL_INTERVAL_S)
        else:
            raise RuntimeError("not over")
        ends = [
            end
            for (end,) in connection.execute(
                "SELECT extract(epoch FROM max(r.created_at) - min(min(r.created_at)) OVER ())"
                "::float8 FROM row_results r WHERE r.batch_id = ANY(%s) GROUP BY r.batch_id",
                (batch_ids,),
            )
        ]
    return {
        "num_owners": NUM_OWNERS,
        "num_lines_each": NUM_LINES,
        "num_polls": len(indices),
        "jain_of_progress_median": round(statistics.median(indices), 4),
        "jain_of_progress_min": round(min(indices), 4),
        "first_owner_done_s": round(min(ends), 2),
        "last_owner_done_s": round(max(ends), 2),
        "first_over_last": round(min(ends) / max(ends), 3),
    }
