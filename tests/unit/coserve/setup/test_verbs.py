"""What the set-up tells somebody who waits for it."""

from __future__ import annotations

from pathlib import Path

from coserve.setup.verbs import first_start_lines


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
