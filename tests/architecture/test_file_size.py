"""Files stay small enough to be read at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_LINES = 500


def _tracked_python() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def test_no_python_file_is_longer_than_the_limit() -> None:
    files = _tracked_python()
    assert files
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in files}
    too_long = {name: n for name, n in lengths.items() if n > MAX_LINES}
    assert not too_long


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "helpers", "common", "misc", "util", "helper"}
    named = [p for p in _tracked_python() if p.stem in vague or p.parent.name in vague]
    assert not named
