"""Tool calls out of what an engine wrote (rows C-06, C-21, S-12).

An engine with a tool-call parser makes `tool_calls` by itself, and they are left alone. Without
one they come as text, in one of two notations that a grammar holds the engine to:

    forced   [{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]
    offered  It is: <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
                    └──────────── opening ──────────┘└arguments┘

Calls are forced by `tool_choice` `required` or a named function, and offered by `auto`
(`api.tool_prompt` asks for them). An answer that has a form, a schema for one, is either calls or
the form: what does not begin with a tag is no call, whatever the form's texts hold. Whole and
streamed answers are read by the same reader, so both say the same. The arguments leave as the
engine wrote them, also where the answer was cut in the middle of them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

CALL_TAG: Final = "<tool_call>"
CALL_END_TAG: Final = "</tool_call>"

FORM_FIELDS: Final = ("response_format", "regex", "ebnf")

_END_OF_TURN: Final = re.compile(
    r"(?:<\|(?:im_end|endoftext|end_of_text|eot_id|eom_id|end|return|eot|user)\|>"
    r"|<(?:end_of_turn|eos|turn\|)>|</s>|<｜end▁of▁sentence｜>|\[e~\[)\Z"
)
_NAME: Final = r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*'
_LISTED: Final = re.compile(rf'\s*[\[,]\s*{_NAME}"parameters"\s*:\s*(?=\S)', re.DOTALL)
_LIST_END: Final = re.compile(r"\s*\]")
_TAGGED: Final = re.compile(rf'{CALL_TAG}\s*{_NAME}"arguments"\s*:\s*(?=\S)', re.DOTALL)
_TAG_END: Final = re.compile(rf"\s*{CALL_END_TAG}")
_TAG_END_BEGINS: Final = re.compile(
    r"\s*(?:"
    + "|".join(re.escape(CALL_END_TAG[:i]) for i in range(1, len(CALL_END_TAG)))
    + r")?\s*\Z"
)
_SPACE: Final = re.compile(r"\s*")
_IN_STRING: Final = re.compile(r'\\.?|"', re.DOTALL)
_OUTSIDE: Final = re.compile(r'["{}\[\]]')
_LONGEST_OPENING: Final = 512
"""In characters: a name has 64 at most; what is longer is no call."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """What the caller said of its tools.

    Attributes:
        forced: The finish reason if calls are forced; none where the model may choose.
        single: One call at most.
        formed: The model may choose, and what is no call has a form.
        older: A call is said as `function_call` (`api.legacy_functions`).
        plain_ends: Marks of the end of a turn are not part of the answer.
    """

    forced: str | None = None
    single: bool = False
    formed: bool = False
    older: bool = False
    plain_ends: bool = True


def choice_of(body: Mapping[str, Any]) -> Any:
    """The choice among the tools that may be called: `allowed_tools` is the mode it names."""
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return choice["allowed_tools"]["mode"]
    return choice


def _has_form(body: Mapping[str, Any]) -> bool:
    """Whether it says what the answer must look like."""
    asked = (body.get("response_format") or {}).get("type", "text")
    return asked != "text" or bool(body.get("regex") or body.get("ebnf"))


def offer_of(body: Mapping[str, Any]) -> ToolOffer | None:
    """What a checked body says of tools; none where nothing may be called.

    OpenAI finishes with `tool_calls` where some call was required, and `stop` where a function was
    named.
    """
    choice = choice_of(body)
    if not body.get("tools") or choice == "none":
        return None
    forced = "stop" if isinstance(choice, Mapping) else None
    forced = "tool_calls" if choice == "required" else forced
    return ToolOffer(
        forced=forced,
        single=body.get("parallel_tool_calls") is False,
        formed=forced is None and _has_form(body),
        older=bool(body.get("functions")),
        plain_ends=body.get("skip_special_tokens") is not False,
    )


class CallReader:
    """Reads calls piece by piece.

    Invariant: what was fed is in the calls or the text that were returned, is punctuation between
    calls, or is in `held`. Reading moves `_at` through `held` and copies no rest, so an answer of
    many calls takes time by its length.

    Args:
        listed: Read a list of calls and nothing else; or a text in which calls have tags.
        formed: A text that does not begin with a tag has none.

    Attributes:
        num_calls: Calls that have begun.
        complete: The list was closed; or the last call was.
        held: Text of which it is not clear yet what it is.
    """

    __slots__ = (
        "_after", "_at", "_depth", "_escaped", "_gap", "_in_call", "_in_string", "_listed",
        "_opens", "_plain", "complete", "held", "num_calls",
    )  # fmt: skip

    def __init__(self, *, listed: bool, formed: bool = False) -> None:
        self.num_calls = 0
        self.complete = False
        self.held = ""
        self._listed = listed
        self._opens = formed  # the first words decide what the rest is
        self._plain = False
        self._in_call = self._in_string = self._escaped = self._after = self._gap = False
        self._depth = self._at = 0

    def feed(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """What `text` adds: to the plain text, and to the calls.

        One delta a call, with id and name where it begins.
        """
        self.held += text
        plain = ""
        deltas: list[dict[str, Any]] = []
        while self._at < len(self.held):
            if self._in_call:
                if not deltas:
                    deltas.append({"index": self.num_calls - 1, "function": {"arguments": ""}})
                deltas[-1]["function"]["arguments"] += self._take_arguments()
                continue
            more = self._next_listed() if self._listed else self._next_tagged()
            if isinstance(more, str):
                plain += more
            elif more is not None:
                deltas.append(more)
            else:
                break
        self.held, self._at = self.held[self._at :], 0
        return plain, deltas

    def rest(self, *, cut: bool) -> str:
        """What is held at the end, as text; of a call that was cut before its arguments, nothing.

        Args:
            cut: The answer ended by its limit.
        """
        held, self.held = self.held, ""
        if self._listed:
            return "" if self.num_calls else held
        if self._after or (cut and CALL_TAG in held):
            return ""
        return held.rstrip() if self.num_calls else held

    def _next_listed(self) -> dict[str, Any] | None:
        if self.complete:
            return None
        opening = _LISTED.match(self.held, self._at)
        if opening is None:
            ended = _LIST_END.match(self.held, self._at) is not None
            self.complete = self.num_calls > 0 and ended
            return None
        return self._begin(opening)

    def _next_tagged(self) -> dict[str, Any] | str | None:
        if self._opens:
            start = self.held.lstrip()
            if len(start) < len(CALL_TAG) and CALL_TAG.startswith(start):
                return None
            self._opens, self._plain = False, not start.startswith(CALL_TAG)
        if self._plain:
            return self._take(len(self.held))
        if self._after:
            end = _TAG_END.match(self.held, self._at)
            if end is not None:
                self._at = end.end()
                self._gap = True
            elif _TAG_END_BEGINS.match(self.held, self._at):
                return None
            self._after = False
            return ""
        if self._gap:
            self._at = cast("re.Match[str]", _SPACE.match(self.held, self._at)).end()
            self._gap = self._at == len(self.held)
            return None if self._gap else ""
        tag = self.held.find(CALL_TAG, self._at)
        if tag > self._at:
            return self._take(tag).rstrip()
        if tag < 0:
            begins = _where_tag_begins(self.held, self._at)
            return self._take(begins) if begins > self._at else None
        opening = _TAGGED.match(self.held, self._at)
        if opening is not None:
            return self._begin(opening)
        if len(self.held) - self._at < _LONGEST_OPENING:
            return None
        return self._take(self._at + len(CALL_TAG))

    def _take(self, end: int) -> str:
        taken, self._at = self.held[self._at : end], end
        return taken

    def _begin(self, opening: re.Match[str]) -> dict[str, Any]:
        self._at = opening.end()
        self.num_calls += 1
        self._in_call = True
        self.complete = False
        return {
            "index": self.num_calls - 1,
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": orjson.loads(opening[1]), "arguments": ""},
        }

    def _take_arguments(self) -> str:
        """What `held` has of the arguments, which end before the bracket that closes the call."""
        held, begin = self.held, self._at
        at = begin + self._escaped
        self._escaped = False
        while mark := (_IN_STRING if self._in_string else _OUTSIDE).search(held, at):
            at, char = mark.end(), mark[0]
            if self._in_string:
                self._in_string = char != '"'
                self._escaped = char == "\\"
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif self._depth:
                self._depth -= 1
            else:
                self._in_call = False
                self._after = self.complete = not self._listed
                self._at = at
                return held[begin : at - 1]
        self._at = len(held)
        return held[begin:]


def _where_tag_begins(text: str, begin: int) -> int:
    """Where the end of a text may be white space and the first part of a tag; else its length."""
    part = next(
        (i for i in range(len(CALL_TAG) - 1, 0, -1) if text.endswith(CALL_TAG[:i], begin)), 0
    )
    return begin + len(text[begin : len(text) - part].rstrip())


def whole_message(
    message: Mapping[str, Any], finish: str, offer: ToolOffer
) -> tuple[dict[str, Any], str]:
    """Text and calls of an engine's whole message, and its finish reason."""
    stream = StreamedCalls(offer)
    calls: list[dict[str, Any]] = [*(message.get("tool_calls") or ())]
    text = message.get("content") or ""
    made, ended = stream.rewrite({"content": text, "tool_calls": calls}, finish)
    return made, ended or finish


class StreamedCalls:
    """Rewrites the deltas of one choice of a request with tools.

    Attributes:
        called: A call has begun.
    """

    __slots__ = ("_native", "_offer", "_pending", "_reader", "called")

    def __init__(self, offer: ToolOffer) -> None:
        self._offer = offer
        self._reader = CallReader(listed=offer.forced is not None, formed=offer.formed)
        self._native = False
        self._pending: list[Any] = []
        self.called = False

    def rewrite(
        self, delta: dict[str, Any], finish: str | None
    ) -> tuple[dict[str, Any], str | None]:
        """A delta with calls in the place of their text, and the reason it ends for."""
        text = delta.get("content") or ""
        calls = delta.get("tool_calls") or []
        if calls and not self._native:
            self._native = True  # the engine makes calls by itself
            text = self._reader.held + text
        if not self._native:
            text, calls = self._reader.feed(text)
            if finish is not None:
                text += self._reader.rest(cut=finish == "length")
        if self._offer.plain_ends:
            text = _without_end_of_turn(text)
        self.called = self.called or bool(calls)
        if self._offer.single:
            calls = [call for call in calls if not call.get("index")]
        made = {**delta, "content": text or None, "tool_calls": calls}
        if self._offer.older and calls:
            made |= {"tool_calls": [], "function_call": _said_part(calls[0]["function"])}
        return made, self._ended(finish)

    def logprobs(
        self, delta: Mapping[str, Any], logprobs: Mapping[str, Any] | None, finish: str | None
    ) -> dict[str, Any] | None:
        """Log probabilities for a delta that was rewritten: those of text, in its order.

        Tokens that turn out to be a call's notation have none.
        """
        self._pending += (logprobs or {}).get("content") or ()
        shown = delta.get("content") or delta.get("reasoning_content") or finish is not None
        if self.called:
            self._pending = []
        if not shown or not self._pending:
            return None
        content, self._pending = self._pending, []
        return {"content": content}

    def _ended(self, finish: str | None) -> str | None:
        whole = self._native or self._reader.complete
        if not self.called or not whole or finish not in ("stop", "tool_calls"):
            return finish
        ended = self._offer.forced or "tool_calls"
        return "function_call" if self._offer.older and ended == "tool_calls" else ended


def _said_part(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: function[name] for name in ("name", "arguments") if function.get(name) is not None
    }


def _without_end_of_turn(text: str) -> str:
    """A text without the mark of the end of a turn.

    SGLang keeps special tokens for every request with tools, since some models write calls in them.
    Where an answer ends by its mark it cuts the mark off, but not where the limit of tokens falls
    on the same token.
    """
    return _END_OF_TURN.sub("", text) if text and text[-1] in ">[" else text
