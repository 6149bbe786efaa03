"""Messages of a checked chat body as engines read them: what was said in any form is told.

role developer                           →  system: templates know no other name for it
a `refusal` part, or a message's own     →  text of the message
`function_call`, and role function       →  `tool_calls`, and role tool with the call's id
null, and keys taken without effect      →  left out
`detail` "original" of an image           →  high
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Message = dict[str, Any]

_ROLES: Final = {"developer": "system"}
_KEPT: Final = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})
_ASSISTANTS: Final = _KEPT | {"reasoning_content"}


def told(messages: list[Message]) -> list[Message]:
    """The messages, in an engine's words; those that are so already are the same objects."""
    return [_told(message) for message in messages]


def _told(message: Message) -> Message:
    role = message["role"]
    is_plain = role not in _ROLES and isinstance(message.get("content"), str)
    if is_plain and message.keys() == {"role", "content"}:
        return message
    kept = _ASSISTANTS if role == "assistant" else _KEPT
    made = {key: value for key, value in message.items() if key in kept and value is not None}
    made |= {"role": _ROLES.get(role, role), "content": _content(message)}
    if message.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return made


def _content(message: Mapping[str, Any]) -> Any:
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, list):
        content = [_part(part) for part in content]
        return [*content, {"type": "text", "text": refusal}] if refusal else content
    if not refusal:
        return content
    return f"{content}\n{refusal}" if content else refusal


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = part["type"]
    if kind == "text" and len(part) == 2:
        return part
    if kind in ("text", "refusal"):
        return {"type": "text", "text": part[kind]}
    inner = {key: value for key, value in part[kind].items() if value is not None}
    if inner.get("detail") == "original":
        inner["detail"] = "high"  # the most that engines know
    return {"type": kind, kind: inner}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {key: call["function"][key] for key in ("name", "arguments")}
    return {"id": call.get("id") or "", "type": "function", "function": function}
