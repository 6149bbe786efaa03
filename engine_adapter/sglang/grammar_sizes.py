"""How large a JSON schema or a pattern may be, so that compiling it cannot starve the engine.

A grammar is compiled on the engine's own cores. Measured with one thread and a vocabulary of
49,152: 1,000 optional properties take 2 s, a string of at most 10,000 characters 2.4 s, and a few
nested repetitions take minutes. So do adjacent optional parts, where the compiler looks at every
way to leave some out: 20 take 3 s, 40 take 22 s. OpenAI's service has limits of the same kind.
"""

from __future__ import annotations

import json
import re
from typing import Any

from api.json_schemas import LENGTHS

MAX_SCHEMA_CHARS = 65_536
MAX_DEPTH = 64
MAX_PROPERTIES = 1_000
MAX_ENUM_VALUES = 2_000
MAX_COUNTED_CHARS = 20_000
MAX_PATTERN_CHARS = 1_024
MAX_GRAMMAR_CHARS = 16_384
MAX_PATTERN_REPEATS = 1_000
MAX_ADJACENT_OPTIONAL = 16

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
    return _Count().refusal(schema)


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


class _Count:
    """What one schema adds up to. The walk takes no part of it for harmless: it visits all."""

    def __init__(self) -> None:
        self._properties = 0
        self._enum_values = 0
        self._counted_chars = 0

    def refusal(self, schema: Any) -> str | None:
        todo = [(schema, 0)]
        while todo:
            part, depth = todo.pop()
            if depth > 3 * MAX_DEPTH:  # an object in an object is two levels of JSON, or three
                return f"the schema is nested more than {MAX_DEPTH} levels deep"
            if isinstance(part, dict):
                refused = self._count_more(part)
                if refused:
                    return refused
                todo.extend((value, depth + 1) for value in part.values())
            elif isinstance(part, list):
                todo.extend((value, depth + 1) for value in part)
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
