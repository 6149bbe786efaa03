"""`python -m bench [NAME...]`: run benchmarks, each in a process of its own.

Without names: what the service's own steps cost. The others take longer, or are about schedulers;
`python -m bench --list` names them all.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SERVICE = ("upload", "validate", "batch_dispatch", "slow_clients")
NOT_BENCHMARKS = {"__init__", "__main__", "report"}


def names() -> list[str]:
    """Every benchmark of one file."""
    found = (path.stem for path in FOLDER.glob("*.py") if "def main(" in path.read_text())
    return sorted(set(found) - NOT_BENCHMARKS)


def main(wanted: list[str]) -> int:
    """Run the benchmarks of these names; the exit status."""
    if wanted == ["--list"]:
        print("\n".join(names()))
        return 0
    unknown = set(wanted) - set(names())
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
        return 2
    failed = []
    for name in wanted or SERVICE:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
