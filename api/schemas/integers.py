"""Bounds of integers as grammars hold them: parts of a range of which each is held exactly.

xgrammar makes digits of bounds. Where both have as many digits and the same first one, all but the
last two digits of its grammar come out wrong (955 to 999 lets 954 through). So a range is cut

    by sign and by number of digits,
    and where the first digit is the same, into tens and hundreds: 1234 to 1300 is
    1234-1239, 1240-1299 and 1300.

A test makes values by the engine's grammar and compares them with the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

Range = tuple[int, int]

LEAST, MOST = -(2**53) + 1, 2**53 - 1
"""What every reader of JSON keeps whole; an open end reaches so far."""
MAX_SPAN: Final = 10_000
"""Of integers that begin with the same digit: each hundred of them is a part."""


def bounds(given: Mapping[str, Any]) -> Range:
    """The first and the last integer that the keywords allow; none where they are the other way."""
    low = max(
        LEAST,
        math.ceil(given.get("minimum", LEAST)),
        math.floor(given.get("exclusiveMinimum", LEAST - 1)) + 1,
    )
    high = min(
        MOST,
        math.floor(given.get("maximum", MOST)),
        math.ceil(given.get("exclusiveMaximum", MOST + 1)) - 1,
    )
    return low, high


def parts(low: int, high: int) -> list[Range] | None:
    """The range in parts that a grammar holds; None where there are too many, or no integer."""
    if low > high:
        return None
    below = _positive(max(1, -high), -low)
    above = _positive(max(0, low), high)
    if below is None or above is None:
        return None
    return [*((-last, -first) for first, last in reversed(below)), *above]


def _positive(low: int, high: int) -> list[Range] | None:
    made: list[Range] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        top = 10 ** (length - 1)
        first, last = max(low, top if length > 1 else 0), min(high, 10 * top - 1)
        if first > last:
            continue
        is_exact = first // top != last // top or last - first + 1 == top
        if not is_exact and last - first > MAX_SPAN:
            return None
        made += [(first, last)] if is_exact else _by_tens(first, last)
    return made


def _by_tens(low: int, high: int) -> list[Range]:
    """Single numbers up to a ten, tens up to a hundred, and so on to the end."""
    cuts = [low]
    while cuts[-1] <= high:
        at = cuts[-1]
        step = 10 if at % 10 == 0 and at + 9 <= high else 1
        whole = (high + 1) // step * step
        cuts.append(min((at // (10 * step) + 1) * 10 * step, whole))
    return [(first, after - 1) for first, after in pairwise(cuts)]
