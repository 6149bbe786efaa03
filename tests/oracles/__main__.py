"""Compare every oracle, or write all anew: `python -m tests.oracles [--write]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run the tests that hold the oracles; the exit status is pytest's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write tests/data/oracles anew")
    options = ["--write-oracles"] if parser.parse_args().write else []
    # Named by their text: to collect every test would take longer than to run these.
    files = sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.oracle" in path.read_text()
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "oracle", *options, *files]
    return subprocess.run(argv, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
