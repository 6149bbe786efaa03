r"""Log probabilities of an engine, as OpenAI documents them.

    chat        a list of tokens, each with its bytes and its alternatives        (row C-17)
    completions four lists with an entry a token; alternatives are objects by name (row L-06)

A token that is part of a character has no text of its own: a completion names it by its bytes, as
in `bytes:\xf0\x9f`.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

UNLIKELY: Final = -9999.0
"""OpenAI's value for what is as good as impossible: engines say -3.4e38 where a grammar forbids."""

_PART: Final = "bytes:\\x"


def chat_logprobs(logprobs: Any) -> dict[str, Any] | None:
    """Those of a chat, with both keys that a strict client reads; the engine's tokens are used."""
    if not isinstance(logprobs, Mapping):
        return None
    tokens = logprobs.get("content")
    return {"content": tokens and [_bounded(token) for token in tokens], "refusal": None}


def _bounded(token: dict[str, Any]) -> dict[str, Any]:
    """The same token, bounded: an answer may have a hundred thousand, and nobody needs two."""
    token["logprob"] = _likely(token["logprob"])
    for other in token.get("top_logprobs") or ():
        _bounded(other)
    return token


def _likely(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, UNLIKELY)


class CompletionLogprobs:
    """Those of one choice of a completion, from one event after the other.

    The engine leaves the offsets out (-1): they are counted here, in characters from the start of
    the choice's text. The token itself is among its alternatives. The first token of an echoed
    prompt has no probability, and null in their place.
    """

    __slots__ = ("_decode", "_num_chars", "_only_sampled")

    def __init__(self, *, only_sampled: bool) -> None:
        """`only_sampled` is true where no other alternatives were asked for (`logprobs` 0)."""
        self._only_sampled = only_sampled
        self._num_chars = 0
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def of(self, logprobs: Any) -> dict[str, Any] | None:
        """What follows; None where the engine says nothing of probabilities."""
        if not isinstance(logprobs, Mapping):
            return None
        tokens: list[str] = logprobs.get("tokens") or []
        each = [_likely(one) for one in (logprobs.get("token_logprobs") or [])]
        top = [] if self._only_sampled else logprobs.get("top_logprobs") or []
        entries = zip_longest(tokens, each[: len(tokens)], top[: len(tokens)])
        return {
            "text_offset": [self._offset_of(token) for token in tokens],
            "token_logprobs": each,
            "tokens": tokens,
            "top_logprobs": [_alternatives(*entry) for entry in entries],
        }

    def _offset_of(self, token: str) -> int:
        """Where a token begins; the next one begins after it."""
        offset = self._num_chars
        self._num_chars += len(self._decode(token_bytes(token)))
        return offset


def _alternatives(
    token: str, logprob: float | None, listed: Mapping[str, float] | None
) -> dict[str, float | None] | None:
    if logprob is None:
        return None
    others = {name: _likely(value) for name, value in (listed or {}).items()}
    return {**others, token: logprob}


def token_bytes(token: str) -> bytes:
    """The bytes of a completion's token, from its name."""
    if token.startswith(_PART):
        try:
            return bytes.fromhex(token.removeprefix("bytes:").replace("\\x", ""))
        except ValueError:
            pass  # a text that begins like one
    return token.encode("utf-8", "replace")
