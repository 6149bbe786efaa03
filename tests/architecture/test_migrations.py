"""Migrations only add, so that code of the version before runs on the tables of the next.

What nobody reads any more goes a version later, and is named in `UNREAD` with the reason.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from store.schema import FIRST, NEEDED

VERSIONS = Path(__file__).parents[2] / "migrations" / "versions"

_NUMBER = re.compile(r'^(revision|down_revision)(?:: [^=]+)? = "?(\w+)"?$', re.M)

UNREAD: dict[str, str] = {}
"""Migration -> why what it takes away is read by no code of the version before."""

TAKES_AWAY = frozenset({"drop_column", "drop_table", "rename_table"})


def _new_migrations() -> list[Path]:
    every = sorted(VERSIONS.glob("[0-9]*.py"))
    return [one for one in every if one.name[:4] > FIRST and one.name[:4] not in UNREAD]


def breaking(source: str) -> list[str]:
    """What of a migration's `upgrade` code of the version before would trip over."""
    upgrade = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "upgrade"
    )
    found = []
    for call in (node for node in ast.walk(upgrade) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        given = {word.arg: word.value for word in call.keywords}
        if name in TAKES_AWAY:
            found.append(name)
        elif name == "alter_column":
            found += [
                f"alter_column {word}"
                for word in ("nullable", "new_column_name", "type_")
                if word in given and ast.unparse(given[word]) != "True"
            ]
        elif name == "add_column":
            column = ast.unparse(call)
            if "nullable=False" in column and "server_default" not in column:
                found.append("add_column that old code does not fill")
    return found


def test_they_are_one_chain_in_the_order_of_their_numbers() -> None:
    before = None
    for path in sorted(VERSIONS.glob("[0-9]*.py")):
        told = dict(_NUMBER.findall(path.read_text()))
        assert told == {"revision": path.name[:4], "down_revision": str(before)}, path.name
        before = told["revision"]
    assert before == NEEDED, "what a process asks of its database: store/schema.py"


@pytest.mark.parametrize("path", _new_migrations(), ids=lambda path: path.stem)
def test_it_only_adds(path: Path) -> None:
    assert breaking(path.read_text()) == []


@pytest.mark.parametrize(
    ("upgrade", "said"),
    [
        ('op.drop_column("t", "c")', "drop_column"),
        ('op.alter_column("t", "c", new_column_name="d")', "alter_column new_column_name"),
        ('op.add_column("t", Column("c", Text, nullable=False))', "add_column that"),
    ],
)
def test_what_takes_away_is_found(upgrade: str, said: str) -> None:
    (found,) = breaking(f"def upgrade():\n    {upgrade}\n")
    assert found.startswith(said)
