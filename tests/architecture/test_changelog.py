"""The changelog is by version, newest first, and what is released is not written to again."""

from __future__ import annotations

import re
from pathlib import Path

MAX_CHARACTERS = 160
TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()


def test_unreleased_comes_first_then_versions_newest_first() -> None:
    names = re.findall(r"^## \[(.+?)\]", TEXT, re.MULTILINE)
    assert names[0] == "Unreleased"
    versions = [tuple(map(int, name.split("."))) for name in names[1:]]
    assert versions
    assert versions == sorted(versions, reverse=True)


def test_every_release_has_its_day() -> None:
    for heading in re.findall(r"^## \[\d.*$", TEXT, re.MULTILINE):
        assert re.fullmatch(r"## \[[\d.]+\] - \d{4}-\d\d-\d\d", heading), heading


def test_an_entry_is_one_line_that_can_be_read() -> None:
    entries = re.findall(r"^- .*$", TEXT, re.MULTILINE)
    assert [one for one in entries if len(one) > MAX_CHARACTERS] == []
    assert re.findall(r"^ {2,}\S.*$", TEXT, re.MULTILINE) == []


def test_an_entry_stands_there_once() -> None:
    entries = re.findall(r"^- .*$", TEXT, re.MULTILINE)
    assert sorted({one for one in entries if entries.count(one) > 1}) == []
