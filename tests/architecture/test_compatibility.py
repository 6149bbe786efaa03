"""docs/compatibility.md names every row of the contract and every test's claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.compatibility import HEAD, PROVEN_BY_CONFORMANCE, told_by_conformance
from tests.integration.contract.rows import DECIDED_OTHERWISE, ROWS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
CLAIM = re.compile(r"@pytest\.mark\.contract\(([^)]*)\)")
SUITE = """
import pytest

def test_c_01_by_its_name(): ...

@pytest.mark.contract("C-01", "C-02")
@pytest.mark.parametrize("number", range(4))
def test_marked(number): assert number != 3

@pytest.mark.contract("C-03")
def test_selected_too(): ...

def test_claims_nothing(): raise AssertionError("not selected")
"""
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


def test_every_row_that_the_code_cites_is_on_the_page() -> None:
    listed = ["git", "ls-files", "*.py", "*.mjs"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cited = re.compile(r"\brows?[\s#]+([A-Z]-\d\d)(?:(?:, | to | and )([A-Z]-\d\d))?")
    texts = {name: (ROOT / name).read_text() for name in names.split() if (ROOT / name).exists()}
    found = {
        (name, row)
        for name, text in texts.items()
        for groups in cited.findall(text)
        for row in groups
        if row
    }
    assert len(found) > 100
    assert sorted(one for one in found if one[1] not in ROWS) == []


def test_no_claim_fails() -> None:
    assert [row for row, status in _statuses().items() if status == "fails"] == []


def test_what_is_decided_otherwise_has_its_page() -> None:
    for row, page in DECIDED_OTHERWISE.items():
        assert row in ROWS
        assert (ROOT / "docs" / page.partition("#")[0]).exists()
        assert f"({page})" in PAGE.read_text()


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_page_is_the_same_from_one_process_and_from_several(
    processes: str, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  contract: rows\n")
    suite, page = tmp_path / "contract" / "test_suite.py", tmp_path / "page.md"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    options = ["-p", "xdist", "-p", "tests.fixtures.compatibility", "-n", processes]
    chosen = ["-m", "contract", "--compatibility", str(page), str(suite)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 5 passed" in run.stdout, run.stdout + run.stderr
    marked, named, other = (
        f"`contract/test_suite.py::{name}`"
        for name in ("test_marked", "test_c_01_by_its_name", "test_selected_too")
    )
    claimed = [line for line in page.read_text().splitlines() if "test_suite.py" in line]
    assert claimed == [
        f"| C-01 | {ROWS['C-01']} | fails | {named}<br>{marked} |",
        f"| C-02 | {ROWS['C-02']} | fails | {marked} |",
        f"| C-03 | {ROWS['C-03']} | pass | {other} |",
    ]
