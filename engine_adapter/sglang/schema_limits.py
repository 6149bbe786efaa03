"""How large a JSON schema or a pattern may be, so that compiling it cannot starve the engine.

A grammar is compiled on the engine's own cores. Measured with one thread and a vocabulary of
49,152: 1,000 optional properties take 2 s, a string of at most 10,000 characters 2.4 s, and a few
nested repetitions take minutes. OpenAI's service has limits of the same kind.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_SCHEMA_CHARS = 65_536
MAX_DEPTH = 64
MAX_PROPERTIES = 1_000
MAX_ENUM_VALUES = 2_000
MAX_COUNTED_CHARS = 20_000
MAX_PATTERN_CHARS = 1_024
MAX_GRAMMAR_CHARS = 16_384
MAX_PATTERN_REPEATS = 1_000

_BOUNDED = re.compile(r"\{(\d+)(?:,(\d*))?\}")


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
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"a pattern has more than {MAX_PATTERN_CHARS} characters"
    return _repeats_refusal(pattern)


def grammar_refusal(text: str) -> str | None:
    """Why a grammar in EBNF is too large, or None; its repetitions are counted as a pattern's."""
    if len(text) > MAX_GRAMMAR_CHARS:
        return f"the grammar has more than {MAX_GRAMMAR_CHARS} characters"
    return _repeats_refusal(text)


def _repeats_refusal(pattern: str) -> str | None:
    repeats = 1
    for least, most in _BOUNDED.findall(pattern):
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
                refused = self._look_at(part)
                if refused:
                    return refused
                todo.extend((value, depth + 1) for value in part.values())
            elif isinstance(part, list):
                todo.extend((value, depth + 1) for value in part)
        return None

    def _look_at(self, part: dict[str, Any]) -> str | None:
        for name in ("properties", "patternProperties"):
            if isinstance(part.get(name), dict):
                self._properties += len(part[name])
        if isinstance(part.get("enum"), list):
            self._enum_values += len(part["enum"])
        for name in ("maxLength", "minLength"):
            length = part.get(name)
            if isinstance(length, int | float) and length > 0:
                self._counted_chars += int(min(length, MAX_COUNTED_CHARS + 1))
        if self._properties > MAX_PROPERTIES:
            return f"the schema has more than {MAX_PROPERTIES} properties"
        if self._enum_values > MAX_ENUM_VALUES:
            return f"the schema has more than {MAX_ENUM_VALUES} enum values"
        if self._counted_chars > MAX_COUNTED_CHARS:
            return f"minLength and maxLength add up to more than {MAX_COUNTED_CHARS}"
        patterns = [part.get("pattern")]
        if isinstance(part.get("patternProperties"), dict):
            patterns += part["patternProperties"]
        for pattern in patterns:
            refused = pattern_refusal(pattern) if isinstance(pattern, str) else None
            if refused:
                return refused
        return None
