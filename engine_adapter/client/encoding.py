"""From an `EngineCall` to the bytes an engine reads."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import orjson

from api.completion_request import only_sampled, only_scores
from api.engine_messages import told
from api.images import text_only
from api.schemas.held import held
from api.tool_prompt import with_tools
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    EngineFacts,
)
from engine_adapter.client.dialects import DIALECTS, Dialect, foreign_body
from engine_adapter.client.engine_facts import SGLANG
from engine_adapter.client.fields import FIELDS, PRIORITIES
from engine_adapter.client.request_class import class_label
from engine_adapter.scheduling.request import RequestClass

_LENGTHS = ("max_completion_tokens", "max_tokens")

LEAST_TOP_P = 1e-6
"""In place of 0, which engines do not take: the likeliest token alone."""


def wall_s() -> float:
    """Seconds since the epoch: deadlines are instants, engines take what is left of them."""
    return time.time_ns() / 1e9


def digest_of(path: str, body: Mapping[str, Any]) -> bytes:
    """Equal for requests of which an engine sees the same, whoever sends them and in what class."""
    plain = orjson.dumps([path, engine_fields(path, body)], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(plain, digest_size=16).digest()


def engine_fields(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a caller's body that may travel: known, and not null (null means unset)."""
    allowed = FIELDS[path].intersection(body)
    fields = {name: body[name] for name in allowed if body[name] is not None}
    if fields.get("reasoning_effort") == "max":
        fields["reasoning_effort"] = "xhigh"
    return fields


def private_fields(
    rid: str, request_class: RequestClass, deadline_in_s: float | None, batch_id: str
) -> dict[str, Any]:
    """The fields by which we tell the engine the request's id, class, deadline and batch."""
    fields: dict[str, Any] = {"rid": rid, "priority": PRIORITIES[request_class]}
    if request_class is not RequestClass.ONLINE:
        detail: dict[str, Any] = {"class": class_label(request_class)}
        if deadline_in_s is not None:
            detail["deadline_in_s"] = deadline_in_s
        if batch_id:
            detail["batch"] = batch_id
        fields["custom_params"] = {"coserve": detail}
    return fields


def engine_body(
    call: EngineCall, *, stream: bool, facts: EngineFacts | None = None
) -> dict[str, Any]:
    """The body to send: what may travel of the caller's, and our private fields.

    Args:
        call: What to send.
        stream: As a stream.
        facts: What the engine says of itself, if it is known.

    What this engine cannot follow is left out and noted in `call.served.not_held`.

    Raises:
        InvalidRequest: This engine cannot do it.
    """
    call.served.not_held.clear()  # another engine may hold what the one before did not
    if facts is not None and facts.foreign:
        body = foreign_body(call, engine_fields(call.path, call.body), facts)
        _hold_to_context(body, facts.sizes_of(body.get("model", "")).context_tokens)
        return _whole(call, body, stream, DIALECTS[facts.server])
    if facts is not None and not facts.reads_images and call.path == CHAT_PATH:
        text_only(call.body)
    body = engine_fields(call.path, call.body)
    if call.path == CHAT_PATH:
        _hold_schema(body, call.served.not_held)
        if "max_completion_tokens" in body:
            body.pop("max_tokens", None)
        if facts is not None:
            _hold_to_context(body, facts.context_tokens)
        if isinstance(body.get("messages"), list):
            body["messages"] = told(body["messages"])
            parses = facts is not None and bool(facts.tool_call_parser)
            body = with_tools(body, parses=parses, not_held=call.served.not_held)
    elif call.path == COMPLETIONS_PATH:
        _hold_schema(body, call.served.not_held)
        if body.get("echo") and only_sampled(body):
            body["logprobs"] = 1  # with 0 the engine says nothing of the prompt's tokens
        if only_scores(call.body):
            body["max_tokens"] = 1
    deadline_in_s = None
    if call.deadline_at is not None:
        deadline_in_s = max(0.0, call.deadline_at.timestamp() - wall_s())
    if facts is not None and not facts.seeds and _draws_by_seed(body):
        del body["seed"]
        call.served.not_held.add("seed")
    body.update(private_fields(call.rid, call.request_class, deadline_in_s, call.batch_id))
    return _whole(call, body, stream, DIALECTS[SGLANG])


def _whole(
    call: EngineCall, body: dict[str, Any], stream: bool, dialect: Dialect
) -> dict[str, Any]:
    """A body with what is sent of every answer: one choice, and `top_p` as engines take it."""
    if call.path == EMBEDDINGS_PATH:
        return body
    fields: dict[str, Any] = {"n": 1, "stream": stream}
    if body.get("top_p", 1) < LEAST_TOP_P:
        fields["top_p"] = LEAST_TOP_P
    if stream:
        fields["stream_options"] = dialect.stream_options
    return body | fields


def _hold_to_context(body: dict[str, Any], context_tokens: int) -> None:
    """SGLang says how many tokens a prompt leaves only for a length within the context."""
    for name in _LENGTHS:
        if context_tokens and body.get(name, 0) > context_tokens:
            body[name] = context_tokens


def _hold_schema(body: dict[str, Any], not_held: set[str]) -> None:
    """Ask for as much of the answer's schema as the grammar can hold."""
    asked = body.get("response_format") or {}
    if asked.get("type") == "json_schema":
        schema, missing = held(asked["json_schema"]["schema"])
        not_held.update(f"schema.{path}" for path in missing)
        inner = {**asked["json_schema"], "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": inner}


def _draws_by_seed(body: Mapping[str, Any]) -> bool:
    """At temperature 0 nothing is drawn, and any seed gives the same answer."""
    return "seed" in body and body.get("temperature") != 0


def encode(call: EngineCall, *, stream: bool, facts: EngineFacts | None = None) -> bytes:
    """`engine_body` as JSON."""
    return orjson.dumps(engine_body(call, stream=stream, facts=facts))
