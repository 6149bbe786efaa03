"""`python -m bench.batch_load`: measure, print, write `bench/results/batch_load.json`.

The whole stack under its own supervisor on a durable Postgres; only the engine is a fake, behind
HTTP, that answers after 20 ms. CPU figures hold for the machine they were taken on: on shared
cores they grow with the load of the neighbours, which `environment` names.

Quoted in docs/benchmark-batch.md and docs/deploy/sizing.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.batch_load import fairness, one_batch
from bench.installation import running_installation
from bench.report import at_least, at_most, option_parser, report, scratch_folder

MANY_LINES = 50_000
TARGETS = {
    "worker_and_postgres_cpu_us_per_line": at_most(250.0),
    "most_growth_with_ten_times_the_lines_mib": at_most(32.0),
    "most_growth_from_first_to_last_third_mib": at_most(32.0),
    "jain_of_progress_median": at_least(0.99),
    "first_over_last": at_least(0.8),
}


def measure(folder: Path, *, few: int, many: int) -> dict[str, Any]:
    """Start everything, run a small and a large batch, then many owners' at once."""
    with running_installation(folder) as installation:
        small = one_batch.measure(installation, few)
        large = one_batch.measure(installation, many)
        fair = fairness.measure(installation)
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
    parser = option_parser(__doc__)
    parser.add_argument("--lines", type=int, default=MANY_LINES)
    options = parser.parse_args()
    with scratch_folder() as folder:
        measured = measure(folder, few=max(1, options.lines // 10), many=options.lines)
    return report("batch_load", measured, TARGETS, keep=options.lines == MANY_LINES)


if __name__ == "__main__":
    sys.exit(main())
