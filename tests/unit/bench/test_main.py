"""`make bench` runs what its help says, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.__main__ import SERVICE, main, names

ROOT = Path(__file__).parents[3]


def test_what_runs_without_names_is_there_and_in_the_help() -> None:
    assert set(SERVICE) <= set(names())
    (told,) = re.findall(r"^bench:.*## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(re.findall(r"\b(?:upload|validation|dispatch|slow clients)\b", told)) == len(SERVICE)


def test_a_name_that_is_none_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["uplaod"]) == 2
    assert "upload" in capsys.readouterr().out


def test_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == names()
