"""docs/compatibility.md names every row of the contract and every test's claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.compatibility import HEAD, PROVEN_BY_CONFORMANCE, told_by_conformance
from tests.integration.contract.rows import DECIDED_OTHERWISE, ROWS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
CLAIM = re.compile(r"@pytest\.mark\.contract\(([^)]*)\)")
NAME = re.compile(r"def test_([tcsplmfbrwze])_(\d\d)_")


def _claimed() -> set[str]:
    claimed: set[str] = set()
    for source in (ROOT / "tests").rglob("test_*.py"):
        text = source.read_text()
        for claim in CLAIM.findall(text):
            claimed |= set(re.findall(r'"([A-Z]-\d\d)"', claim))
        if source.parent.name == "contract":
            claimed |= {f"{letter.upper()}-{number}" for letter, number in NAME.findall(text)}
    return claimed


def _statuses() -> dict[str, str]:
    rows = re.findall(r"^\| ([A-Z]-\d\d) \| [^|]* \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def test_the_page_has_every_row() -> None:
    assert PAGE.read_text().startswith(HEAD)
    assert list(_statuses()) == list(ROWS)


def test_every_claim_is_of_a_row_and_on_the_page() -> None:
    claimed, statuses = _claimed() | PROVEN_BY_CONFORMANCE.keys(), _statuses()
    assert claimed
    assert sorted(claimed - ROWS.keys()) == []
    assert sorted(row for row in claimed if statuses[row] == "not yet") == []
    assert sorted(row for row in ROWS.keys() - claimed if statuses[row] != "not yet") == []


@pytest.mark.parametrize("row", PROVEN_BY_CONFORMANCE)
def test_what_conformance_proves_stands_on_the_page_as_it_was_measured(row: str) -> None:
    assert row not in _claimed(), "one proof a row"
    status, words = told_by_conformance(row)
    assert f"| {row} | {ROWS[row]} | {status} | {words} |" in PAGE.read_text()


def test_no_claim_fails() -> None:
    assert [row for row, status in _statuses().items() if status == "fails"] == []


def test_what_is_decided_otherwise_has_its_record() -> None:
    for row, record in DECIDED_OTHERWISE.items():
        assert row in ROWS
        assert (ROOT / "docs" / "decisions" / record).exists()
