"""`python -m bench.batch_load`: measure, print, write `bench/results/batch_load.json`.

The whole stack under its own supervisor on a durable Postgres; only the engine is a fake, behind
HTTP, that answers after 20 ms. CPU figures hold for the machine they were taken on: on shared
cores they grow with the load of the neighbours, which `environment` names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.batch_load import fairness, one_batch
from bench.report import run
from tests.chaos.engine import FakeEngineProcess
from tests.chaos.installation import Installation

MANY_LINES = 50_000
LATENCY_MS, MAX_RUNNING = 20.0, 1024
TARGETS = {
    "worker_and_postgres_cpu_us_per_line": (250.0, False),
    "most_growth_with_ten_times_the_lines_mib": (32.0, False),
    "most_growth_from_first_to_last_third_mib": (32.0, False),
    "jain_of_progress_median": (0.99, True),
    "first_over_last": (0.8, True),
}


def measure(folder: Path, *, few: int, many: int) -> dict[str, Any]:
    """Start everything, run a small and a large batch, then many owners' at once."""
    fake = FakeEngineProcess(folder, latency_ms=LATENCY_MS, max_running=MAX_RUNNING)
    installation = Installation(folder / "home", fake)
    try:
        installation.start()
        small = one_batch.measure(installation, few)
        large = one_batch.measure(installation, many)
        fair = fairness.measure(installation)
    finally:
        installation.stop()
    grown = {
        role: mib - small["peak_mib"].get(role, mib) for role, mib in large["peak_mib"].items()
    }
    thirds = large["first_and_last_third"].values()
    return {
        **large,
        **fair,
        "few_lines": small,
        "most_growth_with_ten_times_the_lines_mib": round(max(grown.values()), 1),
        "most_growth_from_first_to_last_third_mib": round(
            max(one["last_mib"] - one["first_mib"] for one in thirds), 1
        ),
    }


def main() -> int:
    """Run it; a smaller size prints and writes nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=MANY_LINES)
    options = parser.parse_args()

    def measured(folder: Path) -> dict[str, Any]:
        return measure(folder, few=max(1, options.lines // 10), many=options.lines)

    return run("batch_load", measured, TARGETS, whole=options.lines == MANY_LINES)


if __name__ == "__main__":
    sys.exit(main())
