"""What the figures of the code count."""

from __future__ import annotations

import ast

from bench.house import circles, count


def test_each_line_is_counted_once() -> None:
    body = "# a note\nx = 1  # code\n\n\ndef f():\n    'Say.'\n    return x\n"
    text = f"'Head.'\n\n{body}"
    found = count(text, ast.parse(text))
    assert (found.docstring, found.comment, found.code, found.blank) == (2, 1, 3, 3)
    assert found.total == len(text.splitlines())


def test_modules_that_lead_to_each_other_are_a_circle() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert circles(edges) == [["a", "b", "c"], ["e", "f"]]
    assert circles({"a": {"b"}, "b": set()}) == []
