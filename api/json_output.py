"""JSON as it leaves the service: one value is one line, whatever splits the lines.

Unicode calls three more characters ends of a line: U+0085, U+2028 and U+2029. JSON lets them stand
in strings as they are, and readers that use `str.splitlines` cut a line of a result file or of a
stream in two there. So they are escaped, which says the same to every JSON parser.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

FEW_ITEMS: Final = 64

_ESCAPES: Final = (
    ("\u0085".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def dump(value: Any) -> bytes:
    """A value as JSON in one line, UTF-8."""
    return one_line(orjson.dumps(value))


def dump_long(value: Any) -> bytes:
    """The same, the items of long lists a few at a time: no call of C takes long."""
    return one_line(orjson.dumps(_in_pieces(value)))


def _in_pieces(value: Any) -> Any:
    if type(value) is dict:
        return {key: _in_pieces(one) for key, one in value.items()}
    if type(value) is not list:
        return value
    if len(value) <= FEW_ITEMS:
        return [_in_pieces(one) for one in value]
    pieces = (dump(value[at : at + FEW_ITEMS])[1:-1] for at in range(0, len(value), FEW_ITEMS))
    return orjson.Fragment(b"[" + b",".join(pieces) + b"]")


def let_go_of_lists(value: Any) -> None:
    """Empty the long lists of what nobody needs any more, a few items at a time.

    What goes with its last reference goes in one step, and all of that step keeps the lock.
    """
    if type(value) is dict:
        for one in value.values():
            let_go_of_lists(one)
    elif type(value) is list:
        if len(value) <= FEW_ITEMS:
            for one in value:
                let_go_of_lists(one)
        while len(value) > FEW_ITEMS:
            del value[-FEW_ITEMS:]


def one_line(made: bytes) -> bytes:
    """JSON that was made elsewhere, in one line; none of the three stands outside of a string."""
    if made.isascii():
        return made
    for raw, escaped in _ESCAPES:
        made = made.replace(raw, escaped)
    return made
