"""From a chat answer to the items of a response's output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.responses.items import Item
from api.responses.resource import Ending, ResponseDraft
from api.responses.tools import called
from api.usage import TokenUsage


def whole_response(
    draft: ResponseDraft, choice: Mapping[str, Any], usage: TokenUsage, completed_at: int
) -> dict[str, Any]:
    """The response that a conforming choice of a chat completion makes.

    Thoughts come first, then text, then calls; the last item is the one that a cut has cut.
    """
    ending = Ending(choice["finish_reason"], usage, completed_at)
    message = choice["message"]
    calls = message.get("tool_calls") or ()
    if message.get("reasoning_content"):
        _add(draft, reasoning(message["reasoning_content"]))
    if message.get("content") or not (calls or draft.output):
        tokens = (choice.get("logprobs") or {}).get("content")
        part = text_part(message.get("content") or "", logprobs(tokens) if draft.logprobs else [])
        _add(draft, assistant_message([part]))
    for call in calls:
        function = call["function"]
        named = called(draft.body, function["name"])
        _add(draft, function_call(call["id"], named, function["arguments"]))
    for item in draft.output:
        item["status"] = "completed"
    draft.output[-1]["status"] = ending.status
    return draft.ended(ending)


def _add(draft: ResponseDraft, item: Item) -> None:
    draft.output.append({"id": draft.item_id(item["type"], len(draft.output)), **item})


def reasoning(text: str) -> Item:
    return {
        "type": "reasoning", "status": "in_progress", "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    }  # fmt: skip


def assistant_message(content: list[Item]) -> Item:
    """A message of the model."""
    return {
        "type": "message", "status": "in_progress", "role": "assistant", "content": content,
    }  # fmt: skip


def text_part(text: str, tokens: list[Item]) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": tokens}


def function_call(call_id: str, named: Mapping[str, str], arguments: str) -> Item:
    """A call of one of the caller's functions: `named` is its name, perhaps with a namespace."""
    return {
        "type": "function_call", "status": "in_progress", "call_id": call_id, **named,
        "arguments": arguments,
    }  # fmt: skip


def logprobs(tokens: Sequence[Mapping[str, Any]] | None) -> list[Item]:
    """Log probabilities of a chat answer's tokens as a response says them."""
    return [
        {**_logprob(one), "top_logprobs": [_logprob(top) for top in one.get("top_logprobs") or ()]}
        for one in tokens or ()
    ]


def _logprob(one: Mapping[str, Any]) -> Item:
    return {"token": one["token"], "bytes": one.get("bytes") or [], "logprob": one["logprob"]}
