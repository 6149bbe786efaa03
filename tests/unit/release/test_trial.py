"""A stranger's commands: what they print, why they fail, and that none outlives its time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from release.trial import Stranger, TrialFailed, stranger


@pytest.fixture
def who() -> Iterator[Stranger]:
    with stranger() as one:
        yield one


def test_they_have_an_empty_home_and_nothing_of_ours(
    who: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSERVE_HOME", "/somewhere")
    said = who.run("sh", "-c", "pwd; echo $HOME; echo ${COSERVE_HOME-none}; ls")
    assert said.splitlines() == [str(who.home), str(who.home), "none"]


def test_a_command_that_fails_says_why(who: Stranger) -> None:
    with pytest.raises(TrialFailed, match="No such file or directory"):
        who.run("ls", who.home / "nothing")


def test_nothing_outlives_a_command_that_took_too_long(who: Stranger) -> None:
    with pytest.raises(TrialFailed, match="takes more than 1 s"):
        who.run("sh", "-c", "sleep 100 & echo $! >pid; wait", limit_s=1)
    pid = int((who.home / "pid").read_text())
    with suppress(ProcessLookupError):
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.05)
        pytest.fail("it still runs")
