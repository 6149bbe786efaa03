"""JSON as it leaves the service: one value is one line, whatever splits the lines.

Unicode calls three more characters ends of a line: U+0085, U+2028 and U+2029. JSON lets them stand
in strings as they are, and readers that use `str.splitlines` cut a line of a result file or of a
stream in two there. So they are escaped, which says the same to every JSON parser.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

_ESCAPES: Final = (
    ("\u0085".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def dump(value: Any) -> bytes:
    """A value as JSON in one line, UTF-8."""
    return one_line(orjson.dumps(value))


def one_line(made: bytes) -> bytes:
    """JSON that was made elsewhere, in one line; none of the three stands outside of a string."""
    if made.isascii():
        return made
    for raw, escaped in _ESCAPES:
        made = made.replace(raw, escaped)
    return made
