"""A run without a browser says so, and fails where one is required."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("required", "status"), [("0", 0), ("1", 1)])
def test_without_a_browser_the_run_ends_with_a_loud_line(required: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/e2e/test_dashboard.py"],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nowhere", "COSERVE_REQUIRE_BROWSER": required},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = done.stdout + done.stderr
    not_run = re.search(r"browser tests NOT RUN: (\d+),", done.stdout)
    skipped = re.search(r"^(\d+) skipped", done.stdout, re.MULTILINE)
    assert not_run is not None, said
    assert skipped is not None, said
    assert int(not_run[1]) == int(skipped[1]) > 0
    assert done.returncode == status
