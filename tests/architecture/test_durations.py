"""The end of a run says where its time went, also when it was run in several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITE = """
import subprocess
import sys
import time
import pytest

@pytest.fixture(scope="module")
def inner():
    time.sleep(1.2)

@pytest.fixture
def outer(inner):
    time.sleep(0.6)

@pytest.mark.parametrize("number", [1, 2])
def test_with_both(outer, number):
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.4: pass"])
"""


def test_files_and_fixtures_are_listed_with_their_own_seconds(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(SUITE)
    options = ["-p", "xdist", "-p", "tests.fixtures.durations", "-n", "2", "--dist", "loadfile"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    listed = {
        name: (float(seconds), int(count))
        for seconds, count, name in re.findall(
            r"^ *([\d.]+) s(?: +[\d.]+ cpu)? +(\d+) (?:tests|made)  (\S+)$",
            run.stdout,
            re.MULTILINE,
        )
    }
    names = {name.rpartition("/")[2]: spent for name, spent in listed.items()}
    assert [names[name][1] for name in ("test_one.py", "test_two.py")] == [2, 2]
    assert (names["inner"][1], names["outer"][1]) == (2, 4)
    # Sleeps take at least as long as asked.
    assert names["inner"][0] >= 2.4
    assert names["outer"][0] >= 2.4
    assert names["test_one.py"][0] >= 2.4
    # Of processors only what worked, in the test's process or in one that it waited for.
    used = re.findall(r"s +([\d.]+) cpu +2 tests  \S*(test_\w+\.py)$", run.stdout, re.MULTILINE)
    assert sorted(name for _, name in used) == ["test_one.py", "test_two.py"]
    assert all(float(cpu_s) >= 0.8 for cpu_s, _ in used)
