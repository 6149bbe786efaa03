"""The Response object, from a checked body to its end.

queued → in_progress → completed | incomplete | failed | cancelled
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from api import not_held
from api.errors import ApiError, InvalidRequest, RateLimited
from api.responses.items import Item, item_id
from api.responses.request import conversation_id, wants_logprobs
from api.responses.tools import warnings_of
from api.usage import TokenUsage

RESPONSE_PREFIX: Final = "resp_"

STATUSES: Final = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
TERMINAL: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons of a chat answer that was cut, and what a response says of them."""

_ECHOED: Final = (
    "instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
    "prompt_cache_key",
    "safety_identifier", "temperature", "top_p", "user",
)  # fmt: skip


@dataclass(frozen=True)
class Ending:
    """How the making of an answer ended.

    Attributes:
        finish: Finish reason of the chat answer.
        usage: What it took.
        completed_at: Seconds since the epoch.
    """

    finish: str
    usage: TokenUsage
    completed_at: int

    @property
    def cut(self) -> str | None:
        """Why the answer is incomplete; none where it is whole."""
        return _INCOMPLETE.get(self.finish)

    @property
    def status(self) -> str:
        """The status of the response, and of the item it ended in."""
        return "completed" if self.cut is None else "incomplete"


@dataclass
class ResponseDraft:
    """What a response says of itself while it is made.

    Attributes:
        body: A checked body.
        rid: Hex digits that its id and those of its items are made of.
        created_at: Seconds since the epoch.
        output: The items that are finished.
        not_held: Fields that the engine could not follow; known once it answers.
    """

    body: Mapping[str, Any]
    rid: str
    created_at: int
    output: list[Item] = field(default_factory=list)
    not_held: Collection[str] = ()

    @property
    def id(self) -> str:
        """The response's id."""
        return RESPONSE_PREFIX + self.rid

    @property
    def logprobs(self) -> bool:
        """Whether texts come with the log probabilities of their tokens."""
        return wants_logprobs(self.body)

    def item_id(self, kind: str, place: int) -> str:
        """The id of the item at a place of the output."""
        return item_id(kind, self.rid, f"o{place}")

    def at(self, status: str) -> dict[str, Any]:
        """The object in a status that is no end of a made answer; the output so far is left out."""
        return {**self._head(status), "output": [], "usage": None}

    def ended(self, ending: Ending) -> dict[str, Any]:
        """The object with everything that was made."""
        made = {**self._head(ending.status), "output": self.output}
        if ending.cut is not None:
            made["incomplete_details"] = {"reason": ending.cut}
        else:
            made["completed_at"] = ending.completed_at
        made["usage"] = usage_of(ending.usage)
        return made

    def failed(self, error: ApiError) -> dict[str, Any]:
        """The object of an answer that could not be made."""
        return {**self.at("failed"), "error": error_of(error)}

    def _head(self, status: str) -> dict[str, Any]:
        body = self.body
        named = conversation_id(body)
        warned = [*warnings_of(body), *not_held.warnings(self.not_held)]
        reasoning = body.get("reasoning") or {}
        text = body.get("text") or {}
        verbosity = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "background": bool(body.get("background")),
            "completed_at": None,
            "conversation": None if named is None else {"id": named},
            "error": None,
            "incomplete_details": None,
            "model": body["model"],
            **{name: body.get(name) for name in _ECHOED},
            "metadata": body.get("metadata") or {},
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "reasoning": {name: reasoning.get(name) for name in ("effort", "summary")},
            "service_tier": "flex" if body.get("service_tier") == "flex" else "default",
            "store": body.get("store") is not False,
            "text": {"format": text.get("format") or {"type": "text"}, **verbosity},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": [_tool(tool) for tool in body.get("tools") or ()],
            "top_logprobs": body.get("top_logprobs") or 0,
            "truncation": body.get("truncation") or "disabled",
            **({"warnings": warned} if warned else {}),
        }


def usage_of(usage: TokenUsage) -> dict[str, Any]:
    """The `usage` of a response."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def error_of(error: ApiError) -> dict[str, Any]:
    """The `error` of a failed response: its codes are few."""
    if isinstance(error, RateLimited):
        code = "rate_limit_exceeded"
    else:
        code = "invalid_prompt" if isinstance(error, InvalidRequest) else "server_error"
    return {"code": code, "message": error.message}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        return dict(tool)
    return {"description": None, "parameters": None, "strict": None, **tool}
