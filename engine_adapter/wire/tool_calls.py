"""Tool calls that a caller forced, out of the JSON an engine wrote for them (contract row C-06).

With `tool_choice` `required` or a named function SGLang holds the answer to a list of calls. An
engine with a tool-call parser makes `tool_calls` of it by itself, and its answer is left alone;
without one the list comes back as text::

    [{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]
    └──────── opening ──────────┘└arguments┘└────── opening ───────────┘

Whole and streamed answers are read by the same reader, so both say the same. The arguments leave
as the engine wrote them, also where the answer was cut in the middle of them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import orjson

_OPENING: Final = re.compile(
    r'\s*[\[,]\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"parameters"\s*:\s*(?=\S)', re.DOTALL
)
_CLOSING: Final = re.compile(r"\s*\]")


def forced_finish(body: Mapping[str, Any]) -> str | None:
    """The finish reason of calls that the caller forced; none where the model may choose.

    OpenAI says `tool_calls` where some call was required, and `stop` where a function was named.
    """
    choice = body.get("tool_choice")
    if choice == "required":
        return "tool_calls"
    return "stop" if isinstance(choice, Mapping) else None


class CallReader:
    """Reads a list of calls piece by piece.

    Invariant: what was fed is in the calls that were returned, between two of them, or in `held`.

    Attributes:
        num_calls: Calls that have begun.
        complete: The list was closed.
        held: Text in which the next call has not begun yet.
    """

    __slots__ = ("_depth", "_escaped", "_in_call", "_in_string", "complete", "held", "num_calls")

    def __init__(self) -> None:
        self.num_calls = 0
        self.complete = False
        self.held = ""
        self._in_call = self._in_string = self._escaped = False
        self._depth = 0

    def feed(self, text: str) -> list[dict[str, Any]]:
        """What `text` adds to the calls: one delta a call, with id and name where it begins."""
        self.held += text
        deltas: list[dict[str, Any]] = []
        while self.held and not self.complete:
            if self._in_call:
                if not deltas:
                    deltas.append({"index": self.num_calls - 1, "function": {"arguments": ""}})
                deltas[-1]["function"]["arguments"] += self._take_arguments()
            elif opening := _OPENING.match(self.held):
                deltas.append(self._begin(orjson.loads(opening[1])))
                self.held = self.held[opening.end() :]
            else:
                self.complete = self.num_calls > 0 and _CLOSING.match(self.held) is not None
                break
        return deltas

    def _begin(self, name: str) -> dict[str, Any]:
        self.num_calls += 1
        self._in_call = True
        return {
            "index": self.num_calls - 1,
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }

    def _take_arguments(self) -> str:
        """What `held` has of the arguments, which end before the bracket that closes the call."""
        held = self.held
        for at, char in enumerate(held):
            if self._in_string:
                self._in_string = self._escaped or char != '"'
                self._escaped = char == "\\" and not self._escaped
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                if not self._depth:
                    self._in_call = False
                    self.held = held[at + 1 :]
                    return held[:at]
                self._depth -= 1
        self.held = ""
        return held


def whole_calls(message: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The forced calls in an engine's whole message, and whether their list is complete.

    None where the engine has made calls of them itself, or has written no call.
    """
    content = message.get("content")
    if message.get("tool_calls") or not isinstance(content, str):
        return [], False
    reader = CallReader()
    return reader.feed(content), reader.complete


class ForcedCalls:
    """Rewrites the deltas of one streamed choice whose calls were forced."""

    __slots__ = ("_finish", "_reader")

    def __init__(self, finish: str) -> None:
        self._finish = finish
        self._reader: CallReader | None = CallReader()

    def rewrite(
        self, delta: dict[str, Any], finish: str | None
    ) -> tuple[dict[str, Any], str | None]:
        """A delta with calls in the place of their text, and the reason it ends for."""
        reader = self._reader
        if reader is None:
            return delta, finish
        if delta.get("tool_calls"):
            self._reader = None  # the engine makes calls by itself
            return {**delta, "content": reader.held + (delta.get("content") or "")}, finish
        calls = reader.feed(delta.get("content") or "")
        made = {**delta, "content": None, "tool_calls": calls}
        if finish is not None and not reader.num_calls:
            made["content"] = reader.held  # there was no call in it: it is an answer like any other
        return made, self._finish if finish == "stop" and reader.complete else finish
