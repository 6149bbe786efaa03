"""Pinned lists hold every package for every Python that is supported."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11.7", "3.12.4", "3.13.1")
LISTS = sorted(
    path.name
    for path in (ROOT / "requirements").glob("*.txt")
    if re.search(r"python_full_version >= '3\.1[23]'", path.read_text())
)


def pins(name: str) -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = defaultdict(list)
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            one = Requirement(line.partition(" \\")[0].partition(" #")[0])
            found[one.name].append(one)
    return found


def test_there_are_lists_that_differ_by_python() -> None:
    assert "dev.txt" in LISTS


@pytest.mark.parametrize("name", LISTS)
def test_what_one_python_gets_the_others_get_too(name: str) -> None:
    """A list that is installed without dependencies must not lack one for some Python."""
    for package, entries in pins(name).items():
        if any("sys_platform" in str(one.marker) for one in entries):
            continue
        for python in PYTHONS:
            environment = {
                **{key: str(value) for key, value in default_environment().items()},
                "python_full_version": python,
                "python_version": python.rpartition(".")[0],
            }
            held = [one.marker is None or one.marker.evaluate(environment) for one in entries]
            if any("< '3.11" in str(one.marker).replace('"', "'") for one in entries):
                continue  # a stand-in for what the next Python has itself
            assert sum(held) == 1, f"{name}: {package} for Python {python}"
