"""The end of a log, also while it is rotated."""

from __future__ import annotations

from pathlib import Path

from coserve.commands.logs import Tail


def test_a_tail_goes_on_across_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    path.write_text("one\ntwo\nthree\n")
    tail = Tail(path)
    assert tail.last(2) == ["two", "three"]
    with path.open("a") as log:
        log.write("four\nfi")
        log.flush()
        assert list(tail.more()) == ["four"]
        log.write("ve\n")
    path.rename(tmp_path / "gateway.log.1")
    path.write_text("six\n")
    assert list(tail.more()) == ["five", "six"]
    assert list(tail.more()) == []
    tail.close()


def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "beat.log")
    assert tail.last(5) == []
    (tmp_path / "beat.log").write_text("first\n")
    assert list(tail.more()) == ["first"]
    assert list(tail.more()) == []
    tail.close()


def test_nothing_of_before_when_none_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("old\n")
    tail = Tail(path)
    assert tail.last(0) == []
    assert list(tail.more()) == []
    tail.close()
