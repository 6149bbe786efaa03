"""What of a failed run may run once more."""

from __future__ import annotations

import json
from pathlib import Path

from tests.again import MOST, failed_last, refusal


def test_failed_tests_are_read_from_the_last_run(tmp_path: Path) -> None:
    path = tmp_path / "lastfailed"
    assert failed_last(path) == []
    path.write_text(json.dumps({"tests/b.py::two": True, "tests/a.py::one[x]": True}))
    assert failed_last(path) == ["tests/a.py::one[x]", "tests/b.py::two"]


def test_a_few_tests_run_again() -> None:
    assert refusal(["tests/a.py::one"]) is None
    assert refusal([f"tests/a.py::n{number}" for number in range(MOST)]) is None


def test_what_is_no_accident_does_not() -> None:
    assert "nothing to run again" in (refusal([]) or "")
    assert "more than" in (refusal([f"tests/a.py::n{number}" for number in range(MOST + 1)]) or "")
    assert "could not be read" in (refusal(["tests/a.py"]) or "")
