"""From an `EngineCall` to the bytes an engine reads."""

from __future__ import annotations

import time
from typing import Any

import orjson

from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH, EngineCall
from engine_adapter.wire.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    EMBEDDING_FIELDS,
    STREAM_OPTIONS,
    engine_fields,
    private_fields,
)

_ENGINE_ROLES = {"developer": "system"}


def wall_s() -> float:
    """Seconds since the epoch: deadlines are instants, engines take what is left of them."""
    return time.time_ns() / 1e9


def engine_body(call: EngineCall, *, stream: bool) -> dict[str, Any]:
    """The body to send: what may travel of the caller's, and our private fields."""
    if call.path == CHAT_PATH:
        body = engine_fields(call.body, CHAT_FIELDS)
        # Templates know "system"; "developer" is its newer name (contract row C-10).
        messages = body.get("messages")
        if isinstance(messages, list):
            body["messages"] = [_engine_message(message) for message in messages]
        if "max_completion_tokens" in body:
            body.pop("max_tokens", None)
    elif call.path == EMBEDDINGS_PATH:
        body = engine_fields(call.body, EMBEDDING_FIELDS)
    else:
        body = engine_fields(call.body, COMPLETION_FIELDS)
    deadline_in_s = None
    if call.deadline_at is not None:
        deadline_in_s = max(0.0, call.deadline_at.timestamp() - wall_s())
    body.update(private_fields(call.rid, call.request_class, deadline_in_s, call.batch_id))
    if call.path == EMBEDDINGS_PATH:
        return body
    body["n"] = 1
    body["stream"] = stream
    if stream:
        body["stream_options"] = STREAM_OPTIONS
    return body


def _engine_message(message: Any) -> Any:
    if isinstance(message, dict) and message.get("role") in _ENGINE_ROLES:
        return {**message, "role": _ENGINE_ROLES[message["role"]]}
    return message


def encode(call: EngineCall, *, stream: bool) -> bytes:
    """`engine_body` as JSON."""
    return orjson.dumps(engine_body(call, stream=stream))
