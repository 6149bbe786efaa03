"""`python -m bench [NAME...]`: run the benchmarks, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "report"}


def names() -> list[str]:
    found = (path.stem for path in FOLDER.glob("*.py") if "def main(" in path.read_text())
    return sorted(set(found) - NOT_BENCHMARKS)


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(names())
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
        return 2
    failed = []
    for name in wanted or names():
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
