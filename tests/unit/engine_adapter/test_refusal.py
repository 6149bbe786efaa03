"""The last word of an engine that cannot start, written and read."""

from __future__ import annotations

from pathlib import Path

from engine_adapter.refusal import reason_in, sentence


def test_the_sentence_is_one_line_and_is_read_back(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    told = sentence("the page size\n   is 32; give 16")
    assert "\n" not in told
    log.write_text(f"loading ...\nTraceback\n{told}\nsomething after it\n")
    assert reason_in(log) == "the page size is 32; give 16"


def test_the_last_of_several_counts(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("\n".join([sentence("old"), "x" * 70_000, sentence("new"), ""]))
    assert reason_in(log) == "new"


def test_an_engine_that_did_not_say_why(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    assert reason_in(log) == ""
    log.write_text("Killed\n")
    assert reason_in(log) == ""
