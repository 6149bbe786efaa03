"""From an engine's whole answer to a conforming one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.logprobs import CompletionLogprobs, chat_logprobs, token_bytes
from api.tool_calls import ToolOffer, whole_message
from api.usage import TokenUsage

MAX_TOKENS: Final = 2**31 - 1
MAX_SECONDS: Final = 2**40
"""Of an instant, since the epoch."""

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


class EngineAborted(Exception):
    """The engine dropped the request; its `abort` never reaches a caller (row C-04)."""


def finish_reason_of(reason: Any) -> str | None:
    """A finish reason callers know.

    Raises:
        EngineAborted: The engine dropped the request.
    """
    if reason is None or reason in FINISH_REASONS:
        return reason if isinstance(reason, str) else None
    if reason == "abort":
        raise EngineAborted
    return "stop"


def usage_of(usage: Any) -> TokenUsage:
    """The engine's `usage` object; zero for anything that is missing or no count of tokens.

    Counts are added up for all callers and stored: one that does not fit would spoil all others.
    """
    if not isinstance(usage, Mapping):
        return TokenUsage()
    details = usage.get("prompt_tokens_details")
    return TokenUsage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens") if isinstance(details, Mapping) else 0),
        reasoning_tokens=_count(usage.get("reasoning_tokens")),
    )


def _count(found: Any, most: int = MAX_TOKENS) -> int:
    """A count of an engine's; zero for what is no such count."""
    is_count = isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= most
    return found if is_count else 0


def text_of(said: Any) -> str | None:
    """What a model said, or nothing.

    Raises:
        TypeError: It is no text.
    """
    if said is None or isinstance(said, str):
        return said
    raise TypeError("an engine's text is no string")


def thoughts_of(said: Mapping[str, Any]) -> Any:
    """What a model thought: SGLang's name for it is ours, vLLM has another one."""
    return said.get("reasoning_content") or said.get("reasoning")


def chat_choice(
    choice: Mapping[str, Any], index: int, offer: ToolOffer | None = None
) -> dict[str, Any]:
    """One conforming choice of a chat completion (rows C-03 to C-06).

    Args:
        choice: The engine's.
        index: Its place in the reply.
        offer: What the caller said of its tools (`tool_calls.offer_of`).

    Raises:
        EngineAborted: The engine dropped the request.
        LookupError: The choice has no message.
    """
    engine_message = choice["message"]
    content = text_of(engine_message.get("content"))
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    finish = finish_reason_of(choice.get("finish_reason")) or "stop"
    logprobs = chat_logprobs(choice.get("logprobs"))
    if offer is None and engine_message.get("tool_calls"):
        offer = ToolOffer()
    if offer is not None:
        made, finish = whole_message(engine_message, finish, offer)
        calls, call = made["tool_calls"], made.get("function_call")
        message["content"] = made["content"] if calls or call else made["content"] or ""
        if calls:
            message["tool_calls"] = [_without_nulls(call, "index") for call in calls]
        if call:
            message["function_call"] = call
        if calls or call:
            logprobs = None  # they are those of a notation that nobody sees
    if thoughts := thoughts_of(engine_message):
        message["reasoning_content"] = thoughts
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish,
    }


def completion_choice(
    choice: Mapping[str, Any], index: int, *, only_sampled: bool = False
) -> dict[str, Any]:
    """One conforming choice of a completion (row L-02).

    Args:
        choice: The engine's.
        index: Its place in the reply.
        only_sampled: Log probabilities of no other tokens were asked for.

    Raises:
        EngineAborted: The engine dropped the request.
        LookupError: The choice has no text.
    """
    return {
        "text": text_of(choice["text"]) or "",
        "index": index,
        "logprobs": CompletionLogprobs(only_sampled=only_sampled).of(choice.get("logprobs")),
        "finish_reason": finish_reason_of(choice.get("finish_reason")) or "stop",
    }


def scored(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's answer to a prompt that is only to be scored, without the token it had to make.

    Raises:
        LookupError: The answer has no choice with log probabilities.
    """
    choice = answer["choices"][0]
    logprobs = choice["logprobs"]
    made = token_bytes(logprobs["tokens"][-1]).decode("utf-8", "replace")
    prompt_only = {name: items[:-1] for name, items in logprobs.items() if items}
    text = choice.get("text") or ""
    kept = {**choice, "text": text.removesuffix(made), "logprobs": prompt_only}
    usage = {**(answer.get("usage") or {}), "completion_tokens": 0}
    return {**answer, "choices": [{**kept, "finish_reason": "length"}], "usage": usage}


def public_id(path: str, rid: str) -> str:
    """The id a caller sees; it holds the engine's id, so that a report leads to its log."""
    return f"{'chatcmpl-' if path.endswith('/chat/completions') else 'cmpl-'}{rid}"


def reply_body(
    path: str, rid: str, created: int, model: str, choices: list[dict[str, Any]], usage: TokenUsage
) -> dict[str, Any]:
    """A whole reply body (rows C-01, C-02, L-01)."""
    chat = path.endswith("/chat/completions")
    return {
        "id": public_id(path, rid),
        "object": "chat.completion" if chat else "text_completion",
        "created": created,
        "model": model,
        "choices": choices,
        "usage": usage.as_wire(),
    }


def conforming_reply(
    path: str,
    rid: str,
    model: str,
    body: Mapping[str, Any],
    index: int = 0,
    offer: ToolOffer | None = None,
    only_sampled: bool = False,
) -> tuple[dict[str, Any], TokenUsage]:
    """An engine's single-choice answer as a conforming body, and its usage.

    Raises:
        EngineAborted: The engine dropped the request.
        LookupError: The answer holds no choice, or its choice says nothing.
    """
    engine_choice = body["choices"][0]
    if path.endswith("/chat/completions"):
        choice = chat_choice(engine_choice, index, offer)
    else:
        choice = completion_choice(engine_choice, index, only_sampled=only_sampled)
    usage = usage_of(body.get("usage"))
    created = _count(body.get("created"), MAX_SECONDS)
    return reply_body(path, rid, created, model, [choice], usage), usage


def _without_nulls(call: Mapping[str, Any], dropped: str) -> dict[str, Any]:
    return {name: value for name, value in call.items() if value is not None and name != dropped}
