"""A docstring says more than the name it stands under, or is not there.

Handlers of routes and commands are left out: their docstrings are what users read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = (
    "api", "batch", "bench", "coserve", "engine_adapter", "gateway", "kernels", "lab", "service",
    "store",
)  # fmt: skip
READ_BY_USERS: Final = ("gateway/routes/", "gateway/tenants/shapes.py", "coserve/commands/")
SAYS_NOTHING: Final = frozenset(
    re.findall(
        r"\w+",
        """
    a all an and are as at be by do each end ended everything for from has have in is it its itself
    measure module nobody of on one or ours page print read report run see start started that the
    their them there they this those to what which whatever who whose with word words write
    """,
    )
)


def _words(text: str) -> Iterator[str]:
    for word in re.findall(r"[A-Za-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)):
        yield word.lower().removesuffix("s")


def says_nothing(name: str, docstring: str) -> bool:
    """Whether a docstring of one short line only repeats its name, or only points elsewhere."""
    if "\n" in docstring or len(docstring.split()) > 6:
        return False
    if docstring.startswith("See ") and len(docstring.split()) <= 4:
        return True
    said = set(_words(docstring)) - set(_words(name))
    return said <= {word.removesuffix("s") for word in SAYS_NOTHING}


def _empty(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None and says_nothing(node.name, docstring):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {docstring}")
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_docstring_says_something(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    read = [path for path in files if not str(path.relative_to(ROOT)).startswith(READ_BY_USERS)]
    assert [line for path in read for line in _empty(path)] == []


@pytest.mark.parametrize(
    ("name", "docstring"),
    [("close", "See `FileStore.close`."), ("read", "Read it."), ("main", "Print and report.")],
)
def test_what_is_looked_for_would_be_found(name: str, docstring: str) -> None:
    assert says_nothing(name, docstring)


@pytest.mark.parametrize(
    ("name", "docstring"),
    [
        ("close", "Close the connections; idempotent."),
        ("plan", "Algorithm 1."),
        ("num_pages", "Pages that nobody holds."),
        ("used_share", "0 to 1 of the disk."),
    ],
)
def test_short_ones_that_say_something_may_stay(name: str, docstring: str) -> None:
    assert not says_nothing(name, docstring)
