"""What the set-up tells somebody who waits for it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coserve.setup.__main__ import VERBS
from coserve.setup.verbs import FROM_DEBIAN, IN_THE_CHECKOUT, first_start_lines

PACKAGE = Path(__file__).parents[4] / "coserve"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the set-up, and nothing set up."""
    for part in ("__init__.py", "setup", "local"):
        copy = shutil.copytree if (PACKAGE / part).is_dir() else shutil.copy
        (tmp_path / "coserve").mkdir(exist_ok=True)
        copy(PACKAGE / part, tmp_path / "coserve" / part)
    (tmp_path / ".tools").mkdir()
    return tmp_path


def heard() -> None:
    """An interrupt is heard, also where the tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def set_up(checkout: Path, verb: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "coserve.setup", verb],
        cwd=checkout,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )


def test_an_interrupt_is_told_not_traced(checkout: Path) -> None:
    with (checkout / ".tools" / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = set_up(checkout, "dev")
        assert running.stdout is not None
        assert "waiting" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        said, errors = running.communicate()
    assert running.returncode == 130
    assert "goes on from there" in said
    assert errors == ""


def test_a_port_that_is_taken_ends_a_first_start_before_it_installs(checkout: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        running = set_up(checkout, "run", COSERVE_HOST="127.0.0.1", COSERVE_PORT=port)
        said, errors = running.communicate()
    assert running.returncode == 2
    assert said == ""
    assert f"Port {port} on 127.0.0.1 is taken" in errors
    assert "make run" in errors


def test_the_first_start_says_what_it_installs_and_how_long_it_takes(tmp_path: Path) -> None:
    told = " ".join(first_start_lines(tmp_path, {}))
    assert ".venv and .venv-engine" in told
    assert "two minutes" in told


def test_an_engine_elsewhere_is_not_installed(tmp_path: Path) -> None:
    told = " ".join(first_start_lines(tmp_path, {"ENGINE_URLS": "http://gpu:30000"}))
    assert ".venv:" in told
    assert ".venv-engine" not in told


def test_later_starts_are_quiet(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv-engine").mkdir()
    assert first_start_lines(tmp_path, {}) == []


def test_each_verb_does_something() -> None:
    assert sorted(VERBS) == sorted([*FROM_DEBIAN, *IN_THE_CHECKOUT])
