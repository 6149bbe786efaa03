"""`python -m bench.small_batches`: what thousands of one-line batches of one tenant cost another.

The whole stack under its own supervisor on a durable Postgres; only the engine is a fake, behind
HTTP, that answers after 20 ms. One tenant makes batches of one line as fast as eight connections
can, while another sends one line at a time and waits for its answer. Then the workers are away for
a while in which as many batches are made, and come back.

Writes `bench/results/small_batches.json` unless `--batches` or `--away` says otherwise.

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import asyncio
import math
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.installation import (
    client_of,
    create,
    database,
    new_projects,
    running_installation,
    upload,
)
from bench.report import at_least, at_most, option_parser, report, scratch_folder
from tests.chaos.installation import Installation

NUM_BATCHES = 10_000
NUM_CLIENTS = 8
AWAY_S = 600.0
"""How long the workers are away: as for an upgrade, and longer than a lease or back-off lives."""

BETWEEN_PROBES_S = 1.0
POLL_INTERVAL_S = 0.1
LIMIT_S = 3600.0
WORKERS = ("worker-stages", "worker-dispatch", "worker-sweep")
TENANT, OTHER = "proj_tenant", "proj_other"
UNLIMITED = {"live_batches": 1_000_000, "batches_per_hour": 1_000_000}
TARGETS = {
    "other_line_p99_s": at_most(10.0),
    "after_absence_other_line_p99_s": at_most(10.0),
    "drained_per_s": at_least(50.0),
    "after_absence_drained_per_s": at_least(50.0),
}


class _Probes:
    """One line of the other tenant after another: how long each took."""

    def __init__(self, installation: Installation, key: str) -> None:
        self._installation, self._key = installation, key
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.took_s: list[float] = []

    def __enter__(self) -> _Probes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with client_of(self._installation, self._key) as client:
            file_id = upload(client, 1)
            while not self._over.is_set():
                began_s = time.perf_counter()
                path = f"/v1/batches/{create(client, file_id)}"
                while client.get(path).raise_for_status().json()["status"] != "completed":
                    if time.perf_counter() - began_s > LIMIT_S:
                        raise RuntimeError("the other tenant's line was never answered")
                    time.sleep(POLL_INTERVAL_S)
                self.took_s.append(time.perf_counter() - began_s)
                time.sleep(BETWEEN_PROBES_S)

    def figures(self) -> dict[str, Any]:
        """Percentiles of what was seen."""
        ordered = sorted(self.took_s)
        return {
            "num_other_lines": len(ordered),
            "other_line_p50_s": round(statistics.median(ordered), 2),
            "other_line_p99_s": round(ordered[math.ceil(0.99 * (len(ordered) - 1))], 2),
            "other_line_max_s": round(ordered[-1], 2),
        }


def _make(installation: Installation, key: str, num: int) -> float:
    """Make so many batches of one line of one file; how many a second came to be."""
    local = threading.local()

    def one(file_id: str) -> None:
        if not hasattr(local, "client"):
            local.client = client_of(installation, key)
        create(local.client, file_id)

    with client_of(installation, key) as client:
        file_id = upload(client, 1)
    began_s = time.perf_counter()
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        for _ in pool.map(one, [file_id] * num):
            pass
    return num / (time.perf_counter() - began_s)


def _wait_until_drained(connection: psycopg.Connection[Any]) -> None:
    until_s = time.perf_counter() + LIMIT_S
    while True:
        found = connection.execute(
            "SELECT count(*) FROM batches WHERE project_id = %s AND completed_at IS NULL", (TENANT,)
        ).fetchone()
        assert found is not None
        if not found[0]:
            return
        if time.perf_counter() > until_s:
            raise RuntimeError(f"{found[0]} batches were not done within {LIMIT_S:.0f} s")
        time.sleep(POLL_INTERVAL_S)


@contextmanager
def _workers_away(installation: Installation) -> Iterator[None]:
    """The workers are stopped, all their processes, until the block ends."""
    pids = [
        pid for name in WORKERS for pid in (*installation.part(name), *installation.children(name))
    ]
    for pid in pids:
        psutil.Process(pid).send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            psutil.Process(pid).send_signal(signal.SIGCONT)


def measure(folder: Path, num: int, away_s: float) -> dict[str, Any]:
    """Both floods, one after the other."""
    with running_installation(folder) as installation:
        known = asyncio.run(new_projects(installation, {TENANT: UNLIMITED, OTHER: UNLIMITED}))
        with database(installation) as connection:
            with _Probes(installation, known[OTHER]) as alone:
                time.sleep(10 * BETWEEN_PROBES_S)
            began_s = time.perf_counter()
            with _Probes(installation, known[OTHER]) as beside:
                made_per_s = _make(installation, known[TENANT], num)
                _wait_until_drained(connection)
            drained_per_s = num / (time.perf_counter() - began_s)
            with _workers_away(installation):
                away_until_s = time.perf_counter() + away_s
                _make(installation, known[TENANT], num)
                time.sleep(max(0.0, away_until_s - time.perf_counter()))
            began_s = time.perf_counter()
            with _Probes(installation, known[OTHER]) as after:
                _wait_until_drained(connection)
                after_per_s = num / (time.perf_counter() - began_s)
    return {
        "num_batches": num,
        "alone_other_line_p50_s": alone.figures()["other_line_p50_s"],
        "made_per_s": round(made_per_s, 1),
        "drained_per_s": round(drained_per_s, 1),
        **beside.figures(),
        "away_s": away_s,
        "after_absence_drained_per_s": round(after_per_s, 1),
        **{f"after_absence_{name}": value for name, value in after.figures().items()},
    }


def main() -> int:
    """Run it; another number of batches or seconds prints and writes nothing."""
    parser = option_parser(__doc__)
    parser.add_argument("--batches", type=int, default=NUM_BATCHES)
    parser.add_argument("--away", type=float, default=AWAY_S, metavar="SECONDS")
    options = parser.parse_args()
    with scratch_folder() as folder:
        measured = measure(folder, options.batches, options.away)
    whole = (options.batches, options.away) == (NUM_BATCHES, AWAY_S)
    return report("small_batches", measured, TARGETS, keep=whole)


if __name__ == "__main__":
    sys.exit(main())
