"""An error of the database says the statement, and never the values that were in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("batch", "coserve", "engine_adapter", "gateway", "migrations", "store")
MAKERS = frozenset({"create_engine", "create_async_engine"})


def makers(source: str) -> Iterator[bool]:
    """For each engine of SQLAlchemy that is made: whether it hides its values."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if name in MAKERS:
            given = {word.arg: ast.unparse(word.value) for word in call.keywords}
            yield given.get("hide_parameters") == "True"


def test_every_engine_hides_values() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): [*makers(path.read_text())] for path in files}
    assert {path: hides for path, hides in found.items() if hides} == {
        "migrations/env.py": [True],
        "store/session.py": [True],
    }


def test_one_that_shows_them_is_found() -> None:
    assert [*makers("create_engine(url, echo=True)")] == [False]
