"""From an engine's embeddings to a conforming reply."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from api.replies import usage_of
from api.usage import TokenUsage


def embedding_item(
    vector: Sequence[float], index: int, encoding_format: str | None
) -> dict[str, Any]:
    """One entry of `data`: numbers, or little-endian float32 in base64 (the SDKs' default)."""
    embedding: list[float] | str = list(vector)
    if encoding_format == "base64":
        embedding = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return {"object": "embedding", "index": index, "embedding": embedding}


def embedding_body(model: str, items: list[dict[str, Any]], usage: TokenUsage) -> dict[str, Any]:
    """A whole reply body; its usage has no answer's part."""
    return {
        "object": "list",
        "data": items,
        "model": model,
        "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens},
    }


def conforming_embedding(
    model: str, body: Mapping[str, Any], encoding_format: str | None
) -> tuple[dict[str, Any], TokenUsage]:
    """An engine's answer to one input as a conforming body, and its usage.

    Raises:
        LookupError: The answer holds no vector.
        TypeError: It holds something else in its place.
        struct.error: Its vector holds something other than float32 numbers.
    """
    vector = body["data"][0]["embedding"]
    usage = TokenUsage(prompt_tokens=usage_of(body.get("usage")).prompt_tokens)
    return embedding_body(model, [embedding_item(vector, 0, encoding_format)], usage), usage
