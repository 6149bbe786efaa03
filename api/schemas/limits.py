"""How large a JSON schema or a pattern may be, so that compiling it cannot starve the engine.

A grammar is compiled on the engine's own cores. Measured with one thread and a vocabulary of
49,152: 1,000 optional properties take 2 s, a string of at most 10,000 characters 2.4 s, and a few
nested repetitions take minutes. So do adjacent optional parts, where the compiler looks at every
way to leave some out: 20 take 3 s, 40 take 22 s. OpenAI's service has limits of the same kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from api.schemas.patterns import LENGTHS

MAX_SCHEMA_CHARS = 65_536
MAX_DEPTH = 64
MAX_PROPERTIES = 1_000
MAX_ENUM_VALUES = 2_000
MAX_COUNTED_CHARS = 20_000
MAX_PATTERN_CHARS = 1_024
MAX_GRAMMAR_CHARS = 16_384
MAX_PATTERN_REPEATS = 1_000
MAX_ADJACENT_OPTIONAL = 16
MAX_UNCERTAIN_REPEATS = 3
MAX_ALIKE = 4_000_000
"""Of texts that begin alike, the squares of the lengths of their equal beginnings, added up. The
compiler compares such texts character by character: two with 3,000 equal ones take 1.9 s."""

# xgrammar reads a pattern up to there, and ends the process where that is nothing.
_NUL = "a pattern has the character U+0000"
_BOUNDED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_PART = r"(?:\[(?:\\.|[^\]\\])*\]|\"(?:\\.|[^\"\\])*\"|\\.|[^\s\\\[\](){}|?*+])"
_ADJACENT_OPTIONAL = re.compile(
    rf"(?:{_PART}(?:[?*]|\{{0?,\d*\}})\s*){{{MAX_ADJACENT_OPTIONAL + 1}}}"
)
"""Single characters, classes and texts; those in brackets of their own are not looked at."""


def schema_refusal(text: str) -> str | None:
    """Why a schema is too large, or None.

    Args:
        text: The schema as JSON; what is no JSON is left to the compiler to refuse.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        return f"the schema has more than {MAX_SCHEMA_CHARS} characters"
    try:
        schema = json.loads(text)
    except RecursionError:
        return f"the schema is nested more than {MAX_DEPTH} levels deep"
    except json.JSONDecodeError:
        return None
    excess = schema_excess(schema)
    return None if excess is None else excess[1]


def schema_excess(schema: Any) -> tuple[str, str] | None:
    """Where a schema becomes too large, as a path below it, and why; or None."""
    return _Count().excess(schema)


def pattern_refusal(pattern: str) -> str | None:
    """Why a regular expression is too large, or None.

    The bounds of all its repetitions are multiplied, as if each were inside the one before.
    """
    return _text_refusal("a pattern", pattern, MAX_PATTERN_CHARS)


def grammar_refusal(text: str) -> str | None:
    """Why a grammar in EBNF is too large, or None; its repetitions are counted as a pattern's."""
    return _text_refusal("the grammar", text, MAX_GRAMMAR_CHARS)


def _text_refusal(what: str, text: str, max_chars: int) -> str | None:
    if "\0" in text:
        return _NUL
    if len(text) > max_chars:
        return f"{what} has more than {max_chars} characters"
    if _alike(_LITERAL.findall(text)) > MAX_ALIKE:
        return f"{what} has texts with equal beginnings that are too long"
    if any(_may_end_early(*found) for found in _REPEATED_GROUP.findall(text)):
        return f"{what} repeats what may end early more than {MAX_UNCERTAIN_REPEATS} times"
    if _ADJACENT_OPTIONAL.search(text):
        return f"a pattern has more than {MAX_ADJACENT_OPTIONAL} adjacent optional parts"
    repeats = 1
    for least, most in _BOUNDED.findall(text):
        # A longer number is too large whatever it is, and slow to read.
        digits = most or least
        repeats *= max(1, int(digits)) if len(digits) < 10 else MAX_PATTERN_REPEATS + 1
        if repeats > MAX_PATTERN_REPEATS:
            return f"the repetitions of a pattern multiply to more than {MAX_PATTERN_REPEATS}"
    return None


_REPEATED_GROUP = re.compile(r"\(((?:\\.|[^()\\])*)\)\{(\d*)(?:,(\d*))?\}")
_VARIABLE = re.compile(r"\\.|[?*+]|\{\d*,\d*\}")


def _may_end_early(body: str, least: str, most: str) -> bool:
    r"""Whether it is like `(\w+\s?){1,60}`: at each character it is open where the next one begins.

    The compiler's matcher follows every way, for seconds a token.
    """
    variable = [one for one in _VARIABLE.findall(body) if not one.startswith("\\")]
    ends_open = re.search(r"(?:[?*]|\{0?,\d*\})\s*$", body) is not None
    bound = int((most or least or "0")[:9])
    return len(variable) > 1 and ends_open and bound > MAX_UNCERTAIN_REPEATS


_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _has_parts(value: Any) -> bool:
    return isinstance(value, dict | list)


_LITTLE = 10_000
"""What is not worth comparing: short names and values, as most are."""


def _alike(texts: Iterable[str]) -> int:
    """What the equal beginnings of texts add up to."""
    ordered = sorted(texts)
    if len(ordered) < 2 or len(ordered) * max(map(len, ordered)) ** 2 < _LITTLE:
        return 0
    return sum(_equal(one, other) ** 2 for one, other in pairwise(ordered))


def _equal(one: str, other: str) -> int:
    """How many characters are the same before the first that is not."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


class _Count:
    """What one schema adds up to. The walk takes no part of it for harmless: it visits all."""

    def __init__(self) -> None:
        self._properties = 0
        self._enum_values = 0
        self._counted_chars = 0
        self._alike = 0

    def excess(self, schema: Any) -> tuple[str, str] | None:
        todo = [(schema, 0, "")] if _has_parts(schema) else []
        while todo:
            part, depth, path = todo.pop()
            if depth > 3 * MAX_DEPTH:  # an object in an object is two levels of JSON, or three
                return path, f"the schema is nested more than {MAX_DEPTH} levels deep"
            if isinstance(part, dict):
                refused = self._count_more(part)
                if refused:
                    return path, refused
                below = [(f"{path}.{name}", one) for name, one in part.items() if _has_parts(one)]
            else:
                below = [(f"{path}[{i}]", one) for i, one in enumerate(part) if _has_parts(one)]
            todo += [(one, depth + 1, where) for where, one in below]
        return None

    def _add_lengths(self, part: dict[str, Any]) -> Any:
        """Count what a text's lengths ask for; the pattern, if it says more than lengths."""
        pattern = part.get("pattern")
        lengths: list[Any] = [part.get(name) for name in ("maxLength", "minLength")]
        if isinstance(pattern, str) and (counted := LENGTHS.fullmatch(pattern)):
            lengths += [float(digits) for digits in counted.groups() if digits]
            pattern = None
        for length in lengths:
            if isinstance(length, int | float) and length > 0:
                self._counted_chars += int(min(length, MAX_COUNTED_CHARS + 1))
        return pattern

    def _count_more(self, part: dict[str, Any]) -> str | None:
        for name in ("properties", "patternProperties"):
            if isinstance(part.get(name), dict):
                self._properties += len(part[name])
        if isinstance(part.get("enum"), list):
            self._enum_values += len(part["enum"])
        pattern = self._add_lengths(part)
        self._alike += _alike(_names_of(part))
        self._alike += _alike(one for one in _values_of(part) if isinstance(one, str))
        if self._alike > MAX_ALIKE:
            return "the schema has names or values with equal beginnings that are too long"
        if self._properties > MAX_PROPERTIES:
            return f"the schema has more than {MAX_PROPERTIES} properties"
        if self._enum_values > MAX_ENUM_VALUES:
            return f"the schema has more than {MAX_ENUM_VALUES} enum values"
        if self._counted_chars > MAX_COUNTED_CHARS:
            return f"minLength and maxLength add up to more than {MAX_COUNTED_CHARS}"
        patterns = [pattern]
        if isinstance(part.get("patternProperties"), dict):
            patterns += part["patternProperties"]
        for pattern in patterns:
            refused = pattern_refusal(pattern) if isinstance(pattern, str) else None
            if refused:
                return refused
        # A grammar beside tools is part of a structural tag (api/tool_prompt.py).
        grammar = part.get("grammar") if part.get("type") == "grammar" else None
        return grammar_refusal(grammar) if isinstance(grammar, str) else None


def _names_of(part: dict[str, Any]) -> Iterable[str]:
    named = part.get("properties")
    return named if isinstance(named, dict) else ()


def _values_of(part: dict[str, Any]) -> Iterable[Any]:
    """The values of an `enum`, or those that branches have alone."""
    values = part.get("enum")
    yield from values if isinstance(values, list) else ()
    branches = part.get("anyOf")
    for one in branches if isinstance(branches, list) else ():
        if isinstance(one, dict):
            alone = one.get("enum")
            yield from alone if isinstance(alone, list) else [one.get("const")]
