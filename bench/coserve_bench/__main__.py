"""``python -m bench.coserve_bench``: the library behind ``coserve bench coserve``.

Quoted in docs/benchmark-coserve-details.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from bench.coserve_bench.compare import Comparison, Overloaded, run_to_end
from bench.coserve_bench.engine_run import EngineFailed
from bench.coserve_bench.options import parse_options
from lab.workload.report import table


def main(argv: list[str] | None = None) -> int:
    """Run a comparison.

    Returns:
        0 if it ended with a table, 1 if an engine failed, 143 if it was terminated, 2 if it was
        asked for something that cannot be measured: an unknown system, a missing file, too much
        load.
    """
    try:
        comparison = Comparison(parse_options(argv))
        status = _run(comparison)
    except (Overloaded, ValueError, FileNotFoundError) as refused:
        print(refused, file=sys.stderr)
        return 2
    if comparison.runs:
        print(table(comparison.results()))
        print(f"\nresults, CSV files and plots: {comparison.options.out}")
    return status


def _run(comparison: Comparison) -> int:
    try:
        run_to_end(comparison)
    except asyncio.CancelledError:
        print("ended by SIGTERM", file=sys.stderr)
        return 128 + signal.SIGTERM
    except EngineFailed as failed:
        print(f"engine failed: {failed}", file=sys.stderr)
        return 1
    return 1 if "failed" in comparison.notes else 0


if __name__ == "__main__":
    sys.exit(main())
