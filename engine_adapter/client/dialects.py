"""What servers that are not ours take: one table, by the kind of server.

    field                      vLLM                  SGLang     any other
    ─────────────────────────  ────────────────────  ─────────  ────────────────────
    those of OpenAI            as they are           the same   the same
    `regex`, `ebnf`            `structured_outputs`  as it is   refused
    `continue_final_message`   with what it implies  as it is   refused
    more for sampling          as they are           the same   refused
    our class, as `priority`   lower is sooner       if told    not sent
    our id                     `request_id`          `rid`      not sent

A field that asks for what happens anyway is left out where it is not known. Tools, forms of the
answer and seeds are passed as the caller wrote them: what the server makes of them is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from api.completion_request import only_scores
from api.engine_messages import told
from api.errors import InvalidRequest
from api.tool_calls import choice_of
from api.tool_prompt import may_call
from engine_adapter.client.base import (
    CHAT_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    EngineFacts,
)
from engine_adapter.client.engine_facts import OTHER, SGLANG, VLLM
from engine_adapter.client.fields import PRIORITIES, STREAM_OPTIONS

Mapped = Callable[[Any], dict[str, Any]]

_MORE: Final = frozenset(
    {
        "top_k", "min_p", "min_tokens", "repetition_penalty", "ignore_eos", "stop_token_ids",
        "skip_special_tokens", "chat_template_kwargs",
    }
)  # fmt: skip
_OF_ENGINES: Final = _MORE | {"regex", "ebnf", "continue_final_message", "separate_reasoning"}
"""Fields that no OpenAI API has."""

_USUAL: Final[Mapping[str, Any]] = {
    "top_k": -1, "min_p": 0, "min_tokens": 0, "repetition_penalty": 1, "ignore_eos": False,
    "stop_token_ids": [], "skip_special_tokens": True, "chat_template_kwargs": {},
    "continue_final_message": False, "separate_reasoning": True,
}  # fmt: skip
"""Values that change nothing."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server.

    Attributes:
        label: Its name for people.
        takes: Fields beyond OpenAI's that it knows.
        mapped: Fields that it calls something else.
        id_field: Where it reads a request's id; empty where it reads none.
        aborts: It drops a request by its id; any other, when the connection is closed.
        stream_options: What its streams are asked for.
        metrics: Names of its metrics of requests that wait and that run.
    """

    label: str
    takes: frozenset[str] = frozenset()
    mapped: Mapping[str, Mapped] = field(default_factory=dict)
    id_field: str = ""
    aborts: bool = False
    stream_options: Mapping[str, bool] = field(default_factory=lambda: {"include_usage": True})
    metrics: tuple[str, str] | None = None


DIALECTS: Final[Mapping[str, Dialect]] = {
    VLLM: Dialect(
        "vLLM",
        takes=_MORE,
        mapped={
            "regex": lambda pattern: {"structured_outputs": {"regex": pattern}},
            "ebnf": lambda grammar: {"structured_outputs": {"grammar": grammar}},
            "continue_final_message": lambda wanted: {
                "continue_final_message": wanted,
                "add_generation_prompt": not wanted,
            },
        },
        id_field="request_id",
        stream_options=STREAM_OPTIONS,
        metrics=("vllm:num_requests_waiting", "vllm:num_requests_running"),
    ),
    SGLANG: Dialect(
        "SGLang",
        takes=_OF_ENGINES,
        id_field="rid",
        aborts=True,
        stream_options=STREAM_OPTIONS,
        metrics=("sglang:num_queue_reqs", "sglang:num_running_reqs"),
    ),
    OTHER: Dialect("OpenAI-compatible server"),
}


def foreign_body(call: EngineCall, fields: dict[str, Any], facts: EngineFacts) -> dict[str, Any]:
    """What is sent to a server that is not ours; see `encoding.engine_body`.

    Args:
        call: The call.
        fields: Those of its body that may travel.
        facts: What the server says of itself.

    Raises:
        InvalidRequest: The server does not know one of its fields.
    """
    dialect = DIALECTS[facts.server]
    if call.path == EMBEDDINGS_PATH:
        return fields | _known_by(call, facts, dialect)
    body = _translated(fields, dialect)
    if call.path == CHAT_PATH:
        if "max_completion_tokens" in body:
            body.pop("max_tokens", None)
        body["messages"] = told(body["messages"])
        body |= _tools_of(body)
    elif only_scores(call.body):
        body |= {"max_tokens": 1, "logprobs": max(1, body["logprobs"])}
    return body | _known_by(call, facts, dialect)


def _translated(body: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The fields under the names that the server reads."""
    said: dict[str, Any] = {}
    for name, value in body.items():
        if name not in _OF_ENGINES or name in dialect.takes:
            said[name] = value
        elif name in dialect.mapped:
            said |= dialect.mapped[name](value)
        elif name not in _USUAL or value != _USUAL[name]:
            raise InvalidRequest(
                f"The engine of this model ({dialect.label}) does not take '{name}'.",
                param=name,
                code="unsupported_parameter",
            )
    return said


def _tools_of(body: dict[str, Any]) -> dict[str, Any]:
    """The tools that may be called; a choice among them in the words that every server knows."""
    if not body.get("tools"):
        return {}
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return {"tools": may_call(body), "tool_choice": choice_of(body)}
    return {}


def _known_by(call: EngineCall, facts: EngineFacts, dialect: Dialect) -> dict[str, Any]:
    """What we tell it of the request: its id and its class."""
    fields: dict[str, Any] = {}
    if dialect.id_field:
        fields[dialect.id_field] = call.rid
    if facts.priority_sign:
        fields["priority"] = facts.priority_sign * PRIORITIES[call.request_class]
    return fields
