"""From an engine's HTTP answer to an `EngineReply`: one place for every client."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import orjson

from api.completion_request import only_sampled, only_scores
from api.embedding_reply import conforming_embedding
from api.engine_errors import (
    UNREADABLE,
    aborted,
    from_engine,
    is_retryable,
    length_of,
    message_of,
    schema_param,
    tool_params,
)
from api.errors import ApiError, EngineUnavailable, RequestFailedAlone, error_body
from api.images import unreadable
from api.replies import EngineAborted, conforming_reply, scored, usage_of
from api.tool_calls import offer_of
from api.usage import TokenUsage
from engine_adapter.client.base import (
    CHAT_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    EngineFacts,
    EngineReply,
    LiveRids,
)
from engine_adapter.client.engine_facts import NotAnEngine, read_facts, read_live
from engine_adapter.client.long_answers import BRIEF_BYTES, loaded

NO_ENGINE: Final = "What answers at this address is no engine."
_UNREADABLE: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error,
)  # fmt: skip
"""What reading raises where a part of an answer is missing or is something else."""

_PROMPT_PARAMS: Final = {CHAT_PATH: "messages", EMBEDDINGS_PATH: "input"}


def prompt_param(path: str) -> str:
    """The field that holds the prompt."""
    return _PROMPT_PARAMS.get(path, "prompt")


def parsed(raw: bytes) -> Any:
    """JSON, or text where it is none."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw[:1000].decode("utf-8", "replace")


def last_served(events: Sequence[bytes]) -> TokenUsage | None:
    """The usage in the last of a stream's events that has one."""
    for event in reversed(events):
        body = parsed(event) if b'"usage"' in event else None
        usage = body.get("usage") if isinstance(body, dict) else None
        if usage is not None:
            return usage_of(usage)
    return None


def error_of(call: EngineCall, status: int, raw: bytes) -> ApiError:
    """The error an error answer stands for."""
    answer = parsed(raw)
    if call.path == CHAT_PATH:
        error = unreadable(call.body, message_of(answer))
        if error is not None:
            return error
    return from_engine(
        status,
        answer,
        prompt_param=prompt_param(call.path),
        schema_param=schema_param(call.body),
        tool_params=tool_params(call.body),
        length=length_of(call.body),
    )


def error_reply(call: EngineCall, error: ApiError) -> EngineReply:
    """A reply that carries the one error envelope."""
    return EngineReply(
        status_code=error.status,
        body=error_body(error),
        request_id=call.request_id,
        retryable=is_retryable(error),
        headers=error.headers,
    )


def decode_reply(call: EngineCall, status: int, raw: bytes) -> EngineReply:
    """The reply to a call, conforming whatever the engine said; its usage is noted as served.

    One answer that lacks a part is that request's failure: the engine goes on serving others.

    Raises:
        EngineUnavailable: A success that cannot be read: the engine is not what we think it is.
    """
    if status >= 400:
        return error_reply(call, error_of(call, status, raw))
    try:
        model, answer = str(call.body.get("model", "")), loaded(raw)
        if call.path == EMBEDDINGS_PATH:
            body, usage = conforming_embedding(model, answer, call.body.get("encoding_format"))
        else:
            scores = call.path != CHAT_PATH and only_scores(call.body)
            answer = scored(answer) if scores else answer
            offer = offer_of(call.body) if call.path == CHAT_PATH else None
            sampled = only_sampled(call.body)
            body, usage = conforming_reply(
                call.path, call.rid, model, answer, offer=offer, only_sampled=sampled
            )
    except EngineAborted:
        call.served.add(usage_of(answer.get("usage")))
        return error_reply(call, aborted())
    except _UNREADABLE as error:
        if not _is_answer(call, raw):
            raise EngineUnavailable(UNREADABLE) from error
        return error_reply(call, RequestFailedAlone(UNREADABLE))
    call.served.add(usage)
    return EngineReply(
        status_code=200,
        body=body,
        usage=usage,
        request_id=call.request_id,
        is_long=len(raw) > BRIEF_BYTES,
    )


def _is_answer(call: EngineCall, raw: bytes) -> bool:
    """Whether it is, at least, the kind of object that an engine answers with."""
    answer = parsed(raw)
    part = "data" if call.path == EMBEDDINGS_PATH else "choices"
    return isinstance(answer, dict) and isinstance(answer.get(part), list) and bool(answer[part])


def decode_live(info: Any) -> LiveRids:
    """Live ids out of an engine's server info.

    Raises:
        EngineUnavailable: What answers is no engine.
    """
    try:
        return read_live(info)
    except NotAnEngine as error:
        raise EngineUnavailable(f"{NO_ENGINE} {error}") from error


def decode_facts(info: Any, models: Any, model_info: Any) -> EngineFacts:
    """Facts out of an engine's three answers.

    Raises:
        EngineUnavailable: What answers is no engine.
    """
    try:
        return read_facts(info, models, model_info)
    except NotAnEngine as error:
        raise EngineUnavailable(f"{NO_ENGINE} {error}") from error
