"""How many tokens a request may take, before anybody has counted them.

The service has no tokenizer. English text has about four characters a token, scripts outside ASCII
about two; a reservation is settled with the engine's own count when the answer has ended, so an
estimate need not be right, only cheap: no text is encoded or copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from engine_adapter.wire.completion_request import DEFAULT_MAX_TOKENS

ASCII_CHARS_PER_TOKEN: Final = 4
OTHER_CHARS_PER_TOKEN: Final = 2
MESSAGE_TOKENS: Final = 4
"""What a chat template puts around each message, about."""

UNBOUNDED_ANSWER_TOKENS: Final = 256
"""Counted for a chat answer whose length the request leaves open."""


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """About how many tokens the prompt, messages or input of a checked body have."""
    if "messages" in body:
        total = sum(
            MESSAGE_TOKENS + _content_tokens(message.get("content")) for message in body["messages"]
        )
        tools = body.get("tools")
        return total + (len(orjson.dumps(tools)) // ASCII_CHARS_PER_TOKEN if tools else 0)
    return _content_tokens(body["prompt"] if "prompt" in body else body.get("input"))


def answer_tokens(body: Mapping[str, Any]) -> int:
    """How many tokens one answer may have at most, or a small guess where that is left open."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit:
        return int(limit)
    if "messages" in body:
        return UNBOUNDED_ANSWER_TOKENS
    return DEFAULT_MAX_TOKENS if "prompt" in body else 0


def text_tokens(text: str) -> int:
    """About how many tokens a text has."""
    per_token = ASCII_CHARS_PER_TOKEN if text.isascii() else OTHER_CHARS_PER_TOKEN
    return -(-len(text) // per_token)


def _content_tokens(content: Any) -> int:
    """Of a text, a list of token ids, or a list of texts, parts or such lists."""
    if isinstance(content, str):
        return text_tokens(content)
    if isinstance(content, Mapping):
        return text_tokens(str(content.get("text") or content.get("refusal") or ""))
    if isinstance(content, list):
        if content and isinstance(content[0], int):
            return len(content)
        return sum(map(_content_tokens, content))
    return 0
