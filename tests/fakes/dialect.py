"""The fake engine's answers, whole and streamed, in SGLang's shape and order of events."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH
from engine_adapter.client.rid import new_rid
from tests.fakes.engine import (
    FakeEngine,
    Refused,
    flat_error,
    usage_block,
    whole_answer,
)
from tests.fakes.script import Script, prompt_text

EMBEDDING_DIMENSIONS = 32


async def answer(
    engine: FakeEngine, path: str, body: Mapping[str, Any], script: Script
) -> dict[str, Any]:
    text, finish, num_tokens = "", "stop", 0
    async with aclosing(engine.run(str(body.get("rid") or new_rid()), script)) as run:
        async for token, reason in run:
            text += token
            num_tokens += bool(token)
            finish = reason or finish
    if path == EMBEDDINGS_PATH:
        if finish == "abort":
            raise Refused(503, flat_error(503, "Abort before prefill"))
        return _embedding(path, body, script.prompt_tokens)
    usage = usage_block(script.prompt_tokens, num_tokens)
    return whole_answer(path, body, text, finish, usage)


def _embedding(path: str, body: Mapping[str, Any], prompt_tokens: int) -> dict[str, Any]:
    """SGLang's shape of an embedding: a unit vector that depends on the text alone."""
    num_dimensions = body.get("dimensions") or EMBEDDING_DIMENSIONS
    if num_dimensions > EMBEDDING_DIMENSIONS:
        raise Refused(400, flat_error(400, "Provided dimensions are greater than max embedding."))
    digest = hashlib.sha256(prompt_text(path, body).encode("utf-8", "surrogatepass")).digest()
    raw = [byte - 127.5 for byte in digest[:num_dimensions]]
    length = math.hypot(*raw)
    item = {"embedding": [part / length for part in raw], "index": 0, "object": "embedding"}
    usage = usage_block(prompt_tokens, 0)
    return {"data": [item], "model": body.get("model"), "object": "list", "usage": usage}


async def events(
    engine: FakeEngine, path: str, body: Mapping[str, Any], script: Script
) -> AsyncGenerator[bytes, None]:
    """The JSON of each event of a streamed answer, `[DONE]` excluded.

    Chat: a role chunk with empty content, content chunks, a finish chunk, a usage chunk.
    Completions: text chunks, the last with the finish reason, a usage chunk.
    """
    chat = path == CHAT_PATH
    rid = str(body.get("rid") or new_rid())  # as SGLang does for callers that name none
    head = {
        "id": rid,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1_700_000_000,
        "model": body.get("model"),
    }
    options = body.get("stream_options") or {}
    num_tokens, finish = 0, "stop"
    async with aclosing(engine.run(rid, script)) as run:
        async for token, reason in run:
            if script.fail_after is not None and num_tokens == script.fail_after:
                yield orjson.dumps({"error": flat_error(500, "ordered by the prompt")})
                return
            if chat and num_tokens == 0:
                yield _event(head, _chat_choice({"role": "assistant", "content": ""}), None)
            num_tokens += bool(token)
            usage = None
            if options.get("continuous_usage_stats"):
                usage = usage_block(script.prompt_tokens, num_tokens)
            if chat:
                if token:
                    told = f"{time.monotonic_ns()} " if script.clock else token
                    delta = {"reasoning_content": None, "content": told}
                    yield _event(head, _chat_choice(delta), usage)
                finish = reason or finish
            else:
                choice = {
                    "index": 0, "text": token, "logprobs": None, "finish_reason": reason,
                    "matched_stop": None,
                }  # fmt: skip
                yield _event(head, choice, usage)
    if chat:
        yield _event(head, _chat_choice({"reasoning_content": None}, finish), None)
    if options.get("include_usage"):
        total = usage_block(script.prompt_tokens, num_tokens)
        yield orjson.dumps({**head, "choices": [], "usage": total})


def _chat_choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "matched_stop": None,
    }  # fmt: skip


def _event(head: dict[str, Any], choice: dict[str, Any], usage: dict[str, Any] | None) -> bytes:
    event = {**head, "choices": [choice]}
    if usage is not None:
        event["usage"] = usage
    return orjson.dumps(event)
