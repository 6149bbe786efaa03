"""Scripts that run in forks of one process are on their own all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.engine_scripts import run_code, run_forked
from tests.fixtures.supervised import wait_until

pytestmark = pytest.mark.thorough


def lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_script_ends_as_it_would_alone() -> None:
    left = run_code("import sys\nprint('here')\nsys.exit(3)\n")
    assert (left.returncode, left.stdout) == (3, "here\n")
    broken = run_code("raise ValueError('no such thing')\n")
    assert broken.returncode == 1
    assert broken.stderr.splitlines()[-1] == "ValueError: no such thing"
    assert run_code("import sys\nsys.exit('said last')\n").returncode == 1
    assert run_code("import os\nos._exit(79)\n").returncode == 79


def test_sglang_is_there_and_nothing_of_what_others_did() -> None:
    change = "import os, sglang\nsglang.changed = True\nos.environ['LEFT'] = '1'\n"
    look = "import os, sys\nprint('sglang' in sys.modules, os.environ.get('LEFT'), WORD)\n"
    look = look.replace("WORD", "os.environ['WORD'], 'changed' in vars(sys.modules['sglang'])")
    assert run_code(change).returncode == 0
    assert run_code(look, WORD="given").stdout == "True None given False\n"


def test_what_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    done = run_forked(script, limit_s=2.0)
    assert done.returncode == -9
    wait_until(lambda: not lives(int(done.stdout)), "what it started has ended")
