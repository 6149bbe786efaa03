"""Processes that tests fork end as those that are started by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.forked import ForkedProcess


def forked(log: Path, *argv: str) -> ForkedProcess:
    return ForkedProcess((sys.executable, "-m", *argv), env=os.environ, log=log)


def test_what_ends_by_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert forked(log, "this").wait() == 0
    assert "Beautiful is better than ugly." in log.read_text()
    assert forked(log, "celery", "no-such-command").wait() == 2
    assert "no-such-command" in log.read_text()


def test_what_is_ended(tmp_path: Path) -> None:
    for end, code in (("terminate", -15), ("kill", -9)):
        process = forked(tmp_path / "log", "http.server", "0", "--bind", "127.0.0.1")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        assert process.poll() is None
        getattr(process, end)()
        assert process.wait() == process.returncode == code
