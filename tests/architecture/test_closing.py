"""What a context manager of the tests has opened is closed however its block ends.

A test that fails or is skipped in the block would leave a socket or a process behind, and the
warning of it would fail some later test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLOSING = frozenset(
    [
        "aclose",
        "cancel",
        "cleanup",
        "close",
        "dispose",
        "kill",
        "result",
        "shutdown",
        "stop",
        "terminate",
        "wait",
        "wait_closed",
    ]
)


def _has_yield(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Yield) for one in ast.walk(node))


def _closes(node: ast.AST) -> bool:
    return any(
        (isinstance(one, ast.Call) and getattr(one.func, "attr", "") in CLOSING)
        or (isinstance(one, ast.Attribute) and one.attr == "should_exit")
        for one in ast.walk(node)
    )


def unsafe(body: list[ast.stmt]) -> Iterator[int]:
    """Lines that close something after a `yield`, and not in a `finally`."""
    yielded = False
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if yielded and _closes(statement):
            yield statement.lineno
        if _has_yield(statement):
            yielded = True
            for part in ("body", "orelse"):
                yield from unsafe(getattr(statement, part, []))


def found_in(text: str) -> list[int]:
    return [
        line
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("contextmanager" in ast.unparse(one) for one in function.decorator_list)
        for line in unsafe(function.body)
    ]


def test_what_is_opened_for_a_block_is_closed_in_finally() -> None:
    files = [path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): found_in(path.read_text()) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_it_would_be_seen() -> None:
    head = "@contextmanager\ndef opened():\n    it = open_it()\n"
    assert found_in(head + "    yield it\n    it.close()\n") == [5]
    assert found_in(head + "    with it:\n        yield it\n        it.stop()\n") == [6]
    assert found_in(head + "    try:\n        yield it\n    finally:\n        it.close()\n") == []
