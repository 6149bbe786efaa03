"""Long answers, read a few tokens at a time beside the event loop.

With log probabilities a token takes two kilobytes of an answer, so an answer of some thousand
tokens is megabytes of JSON. Parsed in one call, the interpreter's lock would be held, and every
stream of the process stand still, for a tenth of a second and more.

    {"choices":[{"logprobs":{"content":[ {…},{…} │ {…},{…} │ {…} ]},…}],"usage":{…}}
                                         piece     piece     piece

The list is cut between tokens; what is around it is parsed with an empty list in its place. Within
a string every quote has a backslash before it, so a key with its quotes is a key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import orjson

from service.bulkhead import Bulkhead

BRIEF_BYTES: Final = 64 * 1024
"""An answer up to this length is read where it comes."""

SWITCH_S: Final = 0.001
"""The interpreter hands its lock over so often, except within one call of C."""

_PIECE_BYTES: Final = 16 * 1024
_MOST_TRIES: Final = 64
_LISTS: Final = re.compile(rb'"logprobs":\s*\{\s*"content":\s*\[|"top_logprobs":\s*\[\s*\{')
_ENDS: Final = (b"}]},{", b"},{")
"""Between two tokens: those with alternatives, and others."""

_THREAD: Final = Bulkhead("answers", 1)
"""More would only queue for the interpreter's lock, and the event loop with them."""

T = TypeVar("T")


async def aside(work: Callable[[], T], *, is_long: bool) -> T:
    """Do work with an answer: beside the loop if it is long, by turns of those who asked."""
    if not is_long:
        return work()
    sys.setswitchinterval(SWITCH_S)
    return await _THREAD.run(work)


def loaded(raw: bytes) -> Any:
    """The JSON of an answer, as `orjson.loads` reads it.

    Raises:
        orjson.JSONDecodeError: It is none.
    """
    begin = _LISTS.search(raw) if len(raw) > BRIEF_BYTES else None
    if begin is None:
        return orjson.loads(raw)
    is_chat = begin[0].endswith(b"[")
    start = begin.end() if is_chat else begin.end() - 1
    listed = _list_from(raw, start)
    if listed is None:
        return orjson.loads(raw)
    tokens, end = listed
    answer = orjson.loads(raw[:start] + raw[end:])
    try:
        logprobs = answer["choices"][0]["logprobs"]
        name = "content" if is_chat else "top_logprobs"
        if logprobs[name] != []:
            return orjson.loads(raw)
        logprobs[name] = tokens
    except (LookupError, TypeError):
        return orjson.loads(raw)
    return answer


def _list_from(raw: bytes, start: int) -> tuple[list[Any], int] | None:
    """The objects of the list whose first one begins at `start`, and where the list ends."""
    made: list[Any] = []
    while (cut := _cut(raw, start, _ENDS, start + _PIECE_BYTES)) is not None:
        piece, end = cut
        made += piece
        start = end + 1
    last = _cut(raw, start, (b"}]",), start)
    if last is None:
        return None
    made += last[0]
    return made, last[1]


def _cut(
    raw: bytes, start: int, ends: tuple[bytes, ...], after: int
) -> tuple[list[Any], int] | None:
    """What lies between `start` and the first end that comes after so many bytes; and where it is.

    What looks like an end may be one of a list within, or text: then what comes before it is no
    JSON, and the next one is tried.
    """
    for end in ends:
        at = after
        for _ in range(_MOST_TRIES):
            at = raw.find(end, at)
            if at < 0:
                break
            stop = at + end.index(b"},") + 1 if end.endswith(b"{") else at + 1
            try:
                return orjson.loads(b"[" + raw[start:stop] + b"]"), stop
            except orjson.JSONDecodeError:
                at += 1
    return None
