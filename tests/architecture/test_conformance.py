"""docs/conformance.md tells what `make conformance` runs, what it leaves out, and what it found."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.conformance.parts import ASKED_FOR, NOT_REAL, PARTS, SCHEMATHESIS_CHECKS
from tests.conformance.results import read_junit
from tests.conformance.suites import node_sdk_selection
from tests.conformance.suites.sdk_selection import DESELECTED, SELECTED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text()
RESULTS = ROOT / "bench" / "results"


def test_the_page_names_parts_suites_checks_and_reasons() -> None:
    words = " ".join(PAGE.split())
    files = (*SELECTED, *node_sdk_selection.SELECTED)
    for name in (*PARTS, *ASKED_FOR, *files, *SCHEMATHESIS_CHECKS):
        assert f"`{name}`" in PAGE, name
    for left in (*DESELECTED, *node_sdk_selection.LEFT):
        assert left["reason"] in words


@pytest.mark.parametrize("run", ["conformance", "conformance_real"])
def test_the_last_run_is_whole_and_good_and_on_the_page(run: str) -> None:
    parts = orjson.loads((RESULTS / f"{run}.json").read_bytes())["parts"]
    left_out = NOT_REAL if run == "conformance_real" else frozenset()
    assert len(parts) == len(PARTS) - len(left_out)
    for part in parts:
        assert part["ok"], part["name"]
        row = f"| {part['name']} | {part['passed']} | {part['failed']} | {part['skipped']} |"
        assert row in PAGE


@pytest.mark.parametrize(
    ("report", "exit_code", "counts", "ok"),
    [
        (None, 0, (0, 0, 0), False),
        (None, 2, (0, 1, 0), False),
        ("<testsuite/>", 0, (0, 0, 0), False),
        ('<s><testcase name="a"/></s>', 0, (1, 0, 0), True),
        ('<s><testcase name="a"/></s>', 1, (1, 1, 0), False),
        ('<s><testcase name="a"><failure message="no"/></testcase></s>', 1, (0, 1, 0), False),
        ('<s><testcase name="a"><skipped/></testcase><testcase/></s>', 0, (1, 0, 1), True),
    ],
)
def test_a_report_that_shows_nothing_is_no_success(
    tmp_path: Path, report: str | None, exit_code: int, counts: tuple[int, int, int], *, ok: bool
) -> None:
    file = tmp_path / "report.xml"
    if report is not None:
        file.write_text(report)
    result = read_junit("x", file, exit_code)
    assert (result.passed, result.failed, result.skipped) == counts
    assert result.ok == ok
