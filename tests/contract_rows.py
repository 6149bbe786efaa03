"""How many rows of the API contract the tests claim, at any commit; nothing is run.

    python -m tests.contract_rows 9d8c4bc HEAD

A row is claimed by `@pytest.mark.contract("C-09", …)`, or by a name in tests/integration/contract
(`test_c_09_…`). That a claim holds is what `make compatibility` says.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.fixtures.compatibility import IN_NAME


def claims(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Row -> the test functions that claim it, by the text of each file below tests/."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        tree = ast.parse(source)
        whole = [row for node in tree.body for row in _module_rows(node)]
        for test in _tests(tree):
            rows = [*whole, *(row for mark in test.decorator_list for row in _marked(mark))]
            named = IN_NAME.match(test.name)
            if named is not None and PurePosixPath(path).parent.name == "contract":
                rows.append(f"{named[1].upper()}-{named[2]}")
            for row in rows:
                found[row].add(f"{path}::{test.name}")
    return found


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield node


def _module_rows(node: ast.stmt) -> Iterable[str]:
    if isinstance(node, ast.Assign) and any(
        isinstance(name, ast.Name) and name.id == "pytestmark" for name in node.targets
    ):
        return _marked(node.value)
    return ()


def _marked(node: ast.AST) -> Iterator[str]:
    """The rows of every `pytest.mark.contract(…)` in an expression."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.contract":
            yield from (str(ast.literal_eval(argument)) for argument in call.args)


def sources_at(commit: str) -> dict[str, str]:
    """The Python files below tests/ as they were."""
    packed = subprocess.run(
        ["git", "archive", commit, "tests"], stdout=subprocess.PIPE, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [one for one in archive if one.isfile() and one.name.endswith(".py")]
        return {
            one.name: file.read().decode()
            for one in members
            if (file := archive.extractfile(one)) is not None
        }


def table(commits: Iterable[str]) -> str:
    """One line a commit, and each row that a later one lacks."""
    lines = ["commit      rows claimed   tests that claim one"]
    before: set[str] = set()
    for commit in commits:
        found = claims(sources_at(commit))
        tests = set().union(*found.values())
        lines.append(f"{commit:<12}{len(found):>12}{len(tests):>23}")
        lines += [f"  no longer claimed: {row}" for row in sorted(before - found.keys())]
        before = set(found)
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1:] or ["HEAD"]))
