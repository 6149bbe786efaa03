"""``python -m bench.coserve_bench``: the library behind ``coserve bench coserve``."""

from __future__ import annotations

import asyncio
import sys

from bench.coserve_bench.compare import Comparison, Overloaded
from bench.coserve_bench.engine_run import EngineFailed
from bench.coserve_bench.options import parse_options
from bench.coserve_bench.report import table


def main(argv: list[str] | None = None) -> int:
    """Run a comparison; 0 if it ended with a table, 2 if overloaded, 1 if an engine failed."""
    comparison = Comparison(parse_options(argv))
    try:
        results = asyncio.run(comparison.run())
    except Overloaded as overloaded:
        print(overloaded, file=sys.stderr)
        return 2
    except EngineFailed as failed:
        print(f"engine failed: {failed}", file=sys.stderr)
        if comparison.runs:
            print(table(comparison.results()))
        return 1
    print(table(results))
    print(f"\nresults, CSV files and plots: {comparison.options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
