"""The shape of an engine's text chunks: nearly all of a stream differ in one string alone.

    {"id":…,"choices":[{"delta":{"content": "text" },"logprobs":null,…}],"usage": {…}}
    └──────────────── head ───────────────┘      └──────────── tail ────────────┘

Head and tail are learned from a chunk that was parsed and judged. A chunk that has both and one
plain JSON string in between says the same as that one, but for its text: the string is cut out
as it is. Everything else (another second in `created`, an escape in the text, a finish reason) is
parsed, and learned from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from api.json_output import one_line

_USAGE: Final = b',"usage":'
_EMPTY: Final = b'""'


class TextShape:
    """The shape of the last text chunk that was parsed.

    Invariant: `_head` ends where the text's string begins, and `_tail` begins where it ends.

    Args:
        key: The text's key in the chunk: `content` or `text`.
    """

    __slots__ = ("_event", "_head", "_key", "_tail")

    def __init__(self, key: str) -> None:
        self._key = f'"{key}":'.encode()
        self._head = self._tail = b""
        self._event: bytes | None = None

    def learn(self, event: bytes, text: str) -> None:
        """Take the shape of an event that was found to say nothing but `text`."""
        self._head = b""
        literal = orjson.dumps(text)
        before, _, after = event.partition(self._key + literal)
        tail, usage, _ = after.partition(_USAGE)
        # Not where the key or the usage's could be part of something else.
        if usage and event.count(self._key) == 1 and after.count(_USAGE) == 1:
            self._head, self._tail = before + self._key, tail + usage

    def text_of(self, event: bytes) -> bytes | None:
        """The JSON string of an event of this shape, empty for no text; none if it is another."""
        head = self._head
        if not head or not event.startswith(head):
            return None
        begin = len(head)
        end = event.find(self._tail, begin)
        if end < 0:
            return None
        literal = event[begin:end]
        if literal[:1] != b'"' or literal[-1:] != b'"' or literal.count(b'"') != 2:
            return None
        if b"\\" in literal:
            return None
        self._event = event
        return b"" if literal == _EMPTY else one_line(literal)

    def take_usage(self) -> Mapping[str, Any] | None:
        """What the last event of this shape said of usage, told once; none if nothing new."""
        event, self._event = self._event, None
        if event is None:
            return None
        try:
            found: Mapping[str, Any] | None = orjson.loads(event).get("usage")
        except orjson.JSONDecodeError:
            return None
        return found
