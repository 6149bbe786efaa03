"""Each issue has a remedy, and the shipped steps are those of the runbook's pages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.verdict import judge
from gateway.verdict.remedies import FOLDER, REMEDIES, RUNBOOK, in_words, runbook, steps
from tests.fixtures.oracles import FOLDER as ORACLES
from tests.fixtures.oracles import Oracle

ROOT = Path(__file__).parents[4]


def plain(text: str) -> str:
    """Without links and emphasis; code keeps its backticks."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(text.split()))
    return re.sub(r"\*+([^*]+)\*+", r"\1", text).strip()


def steps_of(page: str) -> Iterator[dict[str, str]]:
    """The rows, entries and paragraphs below "Do"."""
    told = page.partition("\n## Do\n")[2]
    for block in re.split(r"\n\n+", told.strip()):
        if block.startswith("|"):
            for row in block.splitlines()[2:]:
                when, what = row.strip().strip("|").split(" | ", 1)
                yield {"when": plain(when), "what": plain(what)}
        else:
            for entry in re.split(r"^(?:- |\d+\. )", block, flags=re.MULTILINE):
                if entry.strip():
                    yield {"when": "", "what": plain(entry)}


@pytest.mark.oracle
def test_the_shipped_steps_are_those_of_the_pages(oracle: Oracle) -> None:
    pages = sorted((ROOT / FOLDER).glob("*.md"))
    found = {page.stem: [*steps_of(page.read_text())] for page in pages}
    assert all(found.values())
    text = json.dumps(found, indent=1, ensure_ascii=False)
    oracle(str(Path("../../..") / RUNBOOK.relative_to(ROOT)), text)
    assert ORACLES.parents[2] == ROOT


def codes_of(source: str) -> Iterator[str]:
    """What issues are called in the code: where one is made, and where a cause is chosen."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Issue":
            first: ast.expr = node.args[0]
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("_why_"):
            for one in ast.walk(node):
                if isinstance(one, ast.Return) and isinstance(one.value, ast.Tuple):
                    yield ast.literal_eval(one.value.elts[0])
            continue
        else:
            continue
        if isinstance(first, ast.Constant):
            yield str(first.value)


def test_each_code_of_a_verdict_has_a_remedy() -> None:
    codes = {*codes_of(Path(judge.__file__).read_text())}
    assert {"late", "late_outside", "engine_lost", "batch_late", "requests_fail"} <= codes
    assert codes | {"requests_refused"} == set(REMEDIES)


@pytest.mark.parametrize("code", sorted(REMEDIES))
def test_each_remedy_has_steps(code: str) -> None:
    remedy = REMEDIES[code]
    found = steps(code)
    assert found
    if remedy.when:
        assert [one.when for one in found if one.when in remedy.when]
        assert set(remedy.when) <= {one.when for one in runbook()[remedy.page]}
    assert in_words(code).endswith(f"{FOLDER}/{remedy.page}.md")
