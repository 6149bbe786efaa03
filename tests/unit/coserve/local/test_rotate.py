"""A log that cannot fill the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from coserve.local.shim import RotatingLog


def test_what_is_written_is_there(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "a.log", max_bytes=100, keep=2)
    log.write(b"one\n")
    log.write(b"two\n")
    log.close()
    assert (tmp_path / "a.log").read_bytes() == b"one\ntwo\n"


def test_a_new_start_appends(tmp_path: Path) -> None:
    for text in (b"first\n", b"second\n"):
        log = RotatingLog(tmp_path / "a.log", max_bytes=100, keep=2)
        log.write(text)
        log.close()
    assert (tmp_path / "a.log").read_bytes() == b"first\nsecond\n"


def test_old_files_move_up_and_the_oldest_goes(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "a.log", max_bytes=10, keep=2)
    for number in range(5):
        log.write(b"line %d..\n" % number)
    log.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.log": b"line 4..\n",
        "a.log.1": b"line 3..\n",
        "a.log.2": b"line 2..\n",
    }


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_the_disk_holds_no_more_than_promised(tmp_path: Path, keep: int) -> None:
    log = RotatingLog(tmp_path / "a.log", max_bytes=1000, keep=keep)
    for _ in range(200):
        log.write(b"x" * 99 + b"\n")
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000 * (keep + 1)
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600
