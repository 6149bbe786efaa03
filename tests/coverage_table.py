"""The table of `make coverage`: what the tests ran of each package, read from coverage's JSON.

    coverage json -q -o - | python -m tests.coverage_table

`make coverage` keeps it in bench/results/coverage.txt, so that a change of it is seen in a diff.

Code that runs inside an engine (engine_adapter/sglang, cpu_compat, lab/emulated) is proven by
tests/engine, in processes of the engine's environment, and is not counted here.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

OTHER_ENVIRONMENT = frozenset({"sglang", "cpu_compat", "emulated"})


def package_of(path: str) -> str:
    """The package a file is counted under; none for code that runs inside an engine."""
    first, *rest = path.split("/")
    if first not in ("engine_adapter", "lab") or len(rest) < 2:
        return first
    return "" if rest[0] in OTHER_ENVIRONMENT else f"{first}/{rest[0]}"


def table(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Lines and branches by package, and of all of them."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for path, found in files.items():
        name = package_of(path)
        if not name:
            continue
        summary = found["summary"]
        parts = ("covered_lines", "num_statements", "covered_branches", "num_branches")
        for key in (name, "**all**"):
            for index, part in enumerate(parts):
                counts[key][index] += summary[part]
    lines = [
        "| package | statements | run | branches | taken |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, (ran, all_lines, taken, branches) in sorted(
        counts.items(), key=lambda one: (one[0] == "**all**", one[0])
    ):
        shares = (_share(ran, all_lines), _share(taken, branches))
        lines.append(f"| {name} | {all_lines:,} | {shares[0]} | {branches:,} | {shares[1]} |")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


if __name__ == "__main__":
    print(table(json.load(sys.stdin)["files"]))
