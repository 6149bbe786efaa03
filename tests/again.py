"""What `make test-again` does: run what failed last once more, alone, and name what passes then.

    python -m tests.again

Thousands of tests beside each other on two cores now and then show one that asked too much of
the machine. Such a test is printed as unsteady and is to be mended; more than `MOST` of them,
or one that fails again, is a failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed_last(path: Path) -> list[str]:
    """The ids of the tests that failed in the last run, sorted; none when it said nothing."""
    return sorted(json.loads(path.read_text())) if path.exists() else []


def refusal(failed: list[str]) -> str | None:
    """Why these are not run again; None if they may be."""
    if not failed:
        return "The run ended without naming a failed test: there is nothing to run again."
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than {MOST}: none is run again."
    for name in failed:
        if "::" not in name:
            return f"{name} could not be read: that is no accident."
    return None


def main() -> int:
    failed = failed_last(LAST_FAILED)
    if why := refusal(failed):
        print(why)
        return 1
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *failed]
    if subprocess.run(command, check=False).returncode:
        return 1
    LAST_FAILED.unlink()  # a later stage of CI asks about its own
    for name in failed:
        print(f"UNSTEADY: {name} failed beside the others and passed alone; it is to be mended.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
