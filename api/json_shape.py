"""How deep and how large a JSON body may be, told from its bytes before anything is built of it.

A parsed body takes many times its length (`[[],[],…]` thirty times), and one that is nested deeper
than the serializer goes could be read but never be sent on. Counting bytes is cheap: only a body
that has more brackets than levels are allowed, strings included, is looked at closely. Every step
is linear and none is a loop in Python over the whole body, since it holds up everybody else.
"""

from __future__ import annotations

from typing import Final

from api.errors import InvalidRequest

MAX_DEPTH: Final = 64
MAX_CONTAINERS: Final = 100_000
"""Objects and arrays in one body."""
MAX_STRINGS: Final = 250_000
"""Keys and values."""
MAX_VALUES: Final = 1_000_000
"""Values of any kind; prompts may be given as arrays of token ids."""

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_OPENING = frozenset(b"[{")


def check_shape(
    raw: bytes, *, max_strings: int = MAX_STRINGS, max_values: int = MAX_VALUES
) -> None:
    """Refuse a body that is too deep or has too many parts.

    Raises:
        InvalidRequest: Code `json_too_complex`.
    """
    num_brackets = raw.count(b"[") + raw.count(b"{")
    if (
        num_brackets <= MAX_DEPTH
        and raw.count(b'"') <= 2 * max_strings
        and raw.count(b",") < max_values
    ):
        return
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    _limit(unescaped.count(b'"') // 2, max_strings, "strings")
    outside = b"".join(unescaped.split(b'"')[::2])
    _limit(outside.count(b",") + 1, max_values, "values")
    brackets = outside.translate(None, _NO_BRACKETS)
    _limit(brackets.count(b"[") + brackets.count(b"{"), MAX_CONTAINERS, "objects and arrays")
    depth = 0
    for bracket in brackets[: 2 * MAX_CONTAINERS]:
        depth += 1 if bracket in _OPENING else -1
        _limit(depth, MAX_DEPTH, "levels")


def _limit(number: int, limit: int, what: str) -> None:
    if number > limit:
        raise InvalidRequest(
            f"The body may have {limit:,} {what} at most.", code="json_too_complex"
        )
