"""One supervisor per state directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coserve.local.lock import AlreadyRunningError, HomeLock, LeftoversError, find_owner

URL = "http://127.0.0.1:8080"


def test_the_second_one_is_told_who_the_first_is(tmp_path: Path) -> None:
    lock = HomeLock(tmp_path, URL)
    with pytest.raises(AlreadyRunningError, match="running already") as caught:
        HomeLock(tmp_path, "http://127.0.0.1:9999")
    assert (caught.value.pid, caught.value.url) == (os.getpid(), URL)
    assert "Ctrl-C stops it" in str(caught.value)
    lock.release()


def test_a_released_directory_is_free(tmp_path: Path) -> None:
    HomeLock(tmp_path, URL).release()
    assert find_owner(tmp_path) is None
    HomeLock(tmp_path, URL).release()


def test_who_runs_can_be_asked(tmp_path: Path) -> None:
    assert find_owner(tmp_path) is None
    lock = HomeLock(tmp_path, URL)
    owner = find_owner(tmp_path)
    assert owner is not None
    assert (owner.pid, owner.url) == (os.getpid(), URL)
    lock.release()


def test_a_new_run_waits_for_the_children_of_the_last(tmp_path: Path) -> None:
    last = HomeLock(tmp_path, URL)
    last.wait_for_children(1.0)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=(last.children_fd,)
    )
    last.release()
    new = HomeLock(tmp_path, URL)
    with pytest.raises(LeftoversError):
        new.wait_for_children(0.2)
    child.kill()
    child.wait()
    new.wait_for_children(5.0)
    new.release()
