"""How many tokens a request may take, before anybody has counted them.

The service has no tokenizer. English text has about four characters a token, scripts outside ASCII
about two; a reservation is settled with the engine's own count when the answer has ended, so an
estimate need not be right, only cheap: no text is encoded or copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import orjson

from api.completion_request import DEFAULT_MAX_TOKENS
from api.images import IMAGE_PART, IMAGE_TOKENS
from api.numbers import ModelSizes, check_numbers
from api.responses.call import chat_call
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
)
from engine_adapter.client.routing import Prompt, prompt_of

ASCII_CHARS_PER_TOKEN: Final = 4
OTHER_CHARS_PER_TOKEN: Final = 2
MESSAGE_TOKENS: Final = 4
"""What a chat template puts around each message, about."""

SAMPLE_CHARS: Final = 2048
"""Of a text outside ASCII so many are looked at."""

UNBOUNDED_ANSWER_TOKENS: Final = 256
"""Counted for a chat answer whose length the request leaves open."""


@dataclass(frozen=True)
class Weighed:
    """A checked body, and what is counted of it part by part: of a large one aside.

    Attributes:
        path: What it was checked for.
        body: The body.
        tokens: About how many its prompts have.
        answer_tokens: How many one answer may have, about where the request leaves that open.
        beginning: What routing looks at; none where there is no choice of engines.
        is_large: The body is; so is whatever is made of it.
    """

    path: str
    body: Mapping[str, Any]
    tokens: int
    answer_tokens: int
    beginning: Prompt | None
    is_large: bool


def weigh(
    path: str, body: Mapping[str, Any], sizes: ModelSizes, *, is_large: bool, is_routed: bool
) -> Weighed:
    """Weigh a checked body. May run in a thread.

    Args:
        path: What it was checked for.
        body: The body.
        sizes: Of its model: its numbers are held to them.
        is_large: It is.
        is_routed: Routing will look at it.

    Raises:
        InvalidRequest: A number is too large for the model.
    """
    check_numbers(body, sizes)
    return Weighed(
        path,
        body,
        tokens=prompt_tokens(path, body),
        answer_tokens=answer_tokens(path, body),
        beginning=prompt_of(path, body) if is_routed else None,
        is_large=is_large,
    )


def prompt_tokens(path: str, body: Mapping[str, Any]) -> int:
    """About how many tokens the messages, prompt or input of a checked body have.

    By the path: a field of another endpoint may be there as well, and nobody has checked it.
    """
    if path == RESPONSES_PATH:
        return prompt_tokens(CHAT_PATH, chat_call(body))
    if path == CHAT_PATH:
        total = sum(
            MESSAGE_TOKENS + _content_tokens(message.get("content")) for message in body["messages"]
        )
        tools = body.get("tools")
        return total + (len(orjson.dumps(tools)) // ASCII_CHARS_PER_TOKEN if tools else 0)
    return _content_tokens(body["prompt" if path == COMPLETIONS_PATH else "input"])


def answer_tokens(path: str, body: Mapping[str, Any]) -> int:
    """How many tokens one answer may have at most, or a small guess where that is left open."""
    limit = answer_limit(path, body)
    return UNBOUNDED_ANSWER_TOKENS if limit is None else limit


def answer_limit(path: str, body: Mapping[str, Any]) -> int | None:
    """How many tokens one answer may have at most; None where that is left open."""
    if path == EMBEDDINGS_PATH:
        return 0
    if path == COMPLETIONS_PATH:
        limit = body.get("max_tokens")
        return DEFAULT_MAX_TOKENS if limit is None else int(limit)
    if path == RESPONSES_PATH:
        limit = body.get("max_output_tokens")
    else:
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return int(limit) if limit else None


def text_tokens(text: str) -> int:
    """About how many tokens a text has."""
    if text.isascii():
        return -(-len(text) // ASCII_CHARS_PER_TOKEN)
    # Of a few characters all over it: curly quotes make no other language of a text.
    some = text[:: -(-len(text) // SAMPLE_CHARS)]
    num_other = min(len(some), (len(some.encode(errors="replace")) - len(some) + 1) // 2)
    share = num_other / len(some)
    per_char = (1 - share) / ASCII_CHARS_PER_TOKEN + share / OTHER_CHARS_PER_TOKEN
    return ceil(len(text) * per_char)


def _content_tokens(content: Any) -> int:
    """Of a text, a list of token ids, or a list of texts, parts or such lists."""
    if isinstance(content, str):
        return text_tokens(content)
    if isinstance(content, dict):  # not Mapping: there may be 100,000, and that look is slow
        if content.get("type") == IMAGE_PART:
            return IMAGE_TOKENS
        return text_tokens(str(content.get("text") or content.get("refusal") or ""))
    if isinstance(content, list):
        if content and isinstance(content[0], int):
            return len(content)
        return sum(map(_content_tokens, content))
    return 0
