"""The last word of an engine that refuses to start, and the memory it may take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from engine_adapter.refusal import EXIT_REFUSED, PREFIX
from engine_adapter.sglang.settings import free_bytes

# --- A scheduler's refusal is the last line of its server, whatever the server dies of.

ROOT = Path(__file__).resolve().parents[4]
CHILD = "from engine_adapter.sglang.settings import refuse; refuse('X is 0;\\n give 1')"
SERVER = """
import subprocess, sys
from engine_adapter.sglang.settings import repeat_at_the_end
repeat_at_the_end()
repeat_at_the_end()  # plugins are loaded more than once
code = sys.argv[1]
died = subprocess.run([sys.executable, '-c', code]).returncode
raise RuntimeError(f'scheduler died: {died}')
"""


def run(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", SERVER, code], capture_output=True, text=True, env=env, check=False
    )


def test_the_server_repeats_what_a_child_said_and_leaves_no_file(tmp_path: Path) -> None:
    done = run(tmp_path, CHILD)
    assert done.returncode == EXIT_REFUSED
    assert done.stderr.splitlines() == [PREFIX + "X is 0; give 1"] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_of_something_else_says_what(tmp_path: Path) -> None:
    done = run(tmp_path, "raise SystemExit(3)")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: scheduler died: 3"
    assert list(tmp_path.iterdir()) == []


def test_of_two_ranks_that_refuse_the_first_is_repeated(tmp_path: Path) -> None:
    ranks = (
        "import subprocess, sys\n"
        "for reason in ('first', 'second'):\n"
        "    word = 'from engine_adapter.sglang.settings import refuse; '\n"
        "    subprocess.run([sys.executable, '-c', word + f'refuse({reason!r})'])\n"
    )
    done = run(tmp_path, ranks)
    assert done.stderr.splitlines() == [PREFIX + word for word in ("first", "second", "first")]


def test_a_server_that_refuses_by_itself_leaves_no_file(tmp_path: Path) -> None:
    own = "from engine_adapter.sglang.settings import refuse, repeat_at_the_end\n"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    code = own + "repeat_at_the_end()\nrefuse('no')"
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False, capture_output=True)
    assert done.returncode == EXIT_REFUSED
    assert list(tmp_path.iterdir()) == []


# --- Free memory is that of the container where there is one.


def group(folder: Path, limit: str, used: int, inactive: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
    return folder


def test_a_container_has_what_its_limit_leaves(tmp_path: Path) -> None:
    assert free_bytes(group(tmp_path, "10000", 7000, 500)) == 3500


def test_a_container_that_is_full_has_nothing(tmp_path: Path) -> None:
    assert free_bytes(group(tmp_path, "1000", 7000, 0)) == 0


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    total = psutil.virtual_memory().total
    assert 0 < free_bytes(group(tmp_path, "max", 7000, 500)) <= total
    assert 0 < free_bytes(tmp_path / "nothing") <= total
