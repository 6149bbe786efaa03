"""Items of a response's input: what is accepted, and the messages they stand for.

    {"role": "user", "content": "…"}      a message; `type` may be left out
    {"type": "message", …}                a message, also one of an earlier answer
    {"type": "function_call", …}          a call that an earlier answer made
    {"type": "function_call_output", …}   what the caller's function gave for it
    {"type": "reasoning", …}              thoughts of an earlier answer
    {"type": "item_reference", "id": …}   an item that is stored here

One turn of the model is several items and one chat message: neighbours are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from api import images, rules
from api.errors import InvalidRequest
from api.json_output import dump
from api.objects import only
from api.responses.tools import SKIPPED_ITEMS, flat_name

Item = dict[str, Any]

MAX_ITEMS: Final = 4096
PIECE_BYTES: Final = 32 * 1024
ITEM_REFERENCE: Final = "item_reference"
INPUT_IMAGE: Final = "input_image"

_ROLES: Final = ("user", "system", "developer", "assistant")
_TEXT_KEYS: Final = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
}
_FIRST: Final = frozenset({"system", "developer"})
_BETWEEN_ITEMS: Final = b'},{"id":'
"""Whole items begin with their id (`listed`)."""


def check_input(name: str, value: Any) -> None:
    """A text or an array of items."""
    if type(value) is str:
        return
    if type(value) is not list:
        raise rules.wrong_type(name, "a string or an array of items")
    if not value:
        raise rules.wrong(name, "must have at least one item", "empty_array")
    rules.array_of(_check_unless_skipped, max_items=MAX_ITEMS)(name, value)


def _check_unless_skipped(name: str, value: Any) -> None:
    kind = value.get("type") if type(value) is dict else None
    if type(kind) is not str or kind not in SKIPPED_ITEMS:
        check_item(name, value)


def check_item(name: str, value: Any) -> None:
    rules.obj(name, value)
    kind = value.get("type")
    if kind is None:
        kind = "message" if "role" in value else ITEM_REFERENCE
    check = _CHECKS.get(kind) if type(kind) is str else None
    if check is None:
        served = ", ".join(_CHECKS)
        raise rules.wrong(f"{name}.type", f"this service reads {served}", "unsupported_content")
    if value.get("id") is not None:
        rules.string(256)(f"{name}.id", value["id"])
    check(name, value)


def _check_message(name: str, value: Mapping[str, Any]) -> None:
    rules.one_of(*_ROLES)(f"{name}.role", value.get("role"))
    only(name, value, "message item")
    content = value.get("content")
    if type(content) is str:
        return
    if content is None:
        raise rules.wrong_type(f"{name}.content", "a string or an array of parts")
    part = _check_user_part if value["role"] == "user" else _check_part
    rules.array_of(part)(f"{name}.content", content)


def _check_user_part(name: str, value: Any) -> None:
    """Text or an image; whether the model reads images is asked of its engine."""
    if type(value) is not dict or value.get("type") != INPUT_IMAGE:
        _check_part(name, value)
        return
    only(name, value, INPUT_IMAGE)
    if value.get("file_id") is not None:
        what = "images of stored files are not read: give a data URL as 'image_url'"
        raise rules.wrong(f"{name}.file_id", what, "unsupported_content")
    images.check_url(f"{name}.image_url", value.get("image_url"))
    if value.get("detail") is not None:
        rules.one_of(*images.DETAILS)(f"{name}.detail", value["detail"])


def _check_part(name: str, value: Any) -> None:
    rules.obj(name, value)
    kind = value.get("type")
    if type(kind) is not str:
        raise rules.wrong_type(f"{name}.type", "a string")
    if kind not in _TEXT_KEYS:
        raise rules.wrong(f"{name}.type", "this model reads text parts only", "unsupported_content")
    key = _TEXT_KEYS[kind]
    only(name, value, "refusal part" if key == "refusal" else "output part")
    rules.string()(f"{name}.{key}", value.get(key))


def _check_call(name: str, value: Mapping[str, Any]) -> None:
    only(name, value, "function_call")
    for key, most in (("call_id", 256), ("name", 64), ("arguments", None)):
        rules.string(most)(f"{name}.{key}", value.get(key))
    if value.get("namespace") is not None:
        rules.string(64)(f"{name}.namespace", value["namespace"])


def _check_call_output(name: str, value: Mapping[str, Any]) -> None:
    only(name, value, "function_call_output")
    rules.string(256)(f"{name}.call_id", value.get("call_id"))
    if type(value.get("output")) is not str:
        rules.array_of(_check_part)(f"{name}.output", value.get("output"))


def _check_reasoning(name: str, value: Mapping[str, Any]) -> None:
    only(name, value, "reasoning")
    for key, kind in (("content", "reasoning_text"), ("summary", "summary_text")):
        for i, part in enumerate(_array(f"{name}.{key}", value.get(key))):
            rules.obj(f"{name}.{key}[{i}]", part)
            only(f"{name}.{key}[{i}]", part, "reasoning part")
            rules.one_of(kind)(f"{name}.{key}[{i}].type", part.get("type"))
            rules.string()(f"{name}.{key}[{i}].text", part.get("text"))


def _array(name: str, value: Any) -> list[Any]:
    if value is None:
        return []
    if type(value) is not list:
        raise rules.wrong_type(name, "an array")
    return value


def _check_reference(name: str, value: Mapping[str, Any]) -> None:
    only(name, value, ITEM_REFERENCE)
    rules.string(256)(f"{name}.id", value.get("id"))


_CHECKS: Final = {
    "message": _check_message,
    "function_call": _check_call,
    "function_call_output": _check_call_output,
    "reasoning": _check_reasoning,
    ITEM_REFERENCE: _check_reference,
}

_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
}


def packed(items: Iterable[Item]) -> list[tuple[str, bytes]]:
    """Items as conversations keep them, each an id and its JSON; an id cannot hold NUL there."""
    return [(item["id"].replace("\0", ""), dump(item)) for item in items]


def unpacked(stored: bytes) -> list[Item]:
    """The items of an array that `dump` made of whole items, a few in each call of the parser.

    One call keeps the interpreter's lock to its end, whatever thread it is in. So the array is cut
    where an item may begin. A cut that falls into an item leaves a bracket open and cannot be
    parsed: then the rest is parsed as one.
    """
    items: list[Item] = []
    begin = 1
    while (cut := stored.find(_BETWEEN_ITEMS, begin + PIECE_BYTES)) >= 0:
        try:
            items += orjson.loads(b"[" + stored[begin : cut + 1] + b"]")
        except orjson.JSONDecodeError:
            break
        begin = cut + 2
    items += orjson.loads(b"[" + stored[begin:])
    return items


def item_id(kind: str, of: str, place: str) -> str:
    """The id of an item without one: made from whose it is and where it stands there."""
    return f"{_PREFIXES[kind]}_{of}{place}"


def is_reference(item: Mapping[str, Any]) -> bool:
    """Whether an item only names a stored one."""
    return item.get("type") == ITEM_REFERENCE or ("type" not in item and "role" not in item)


def listed(given: str | Sequence[Mapping[str, Any]], of: str) -> list[Item]:
    """Checked input as items that are whole: with type, id, status and content in parts.

    Items that are not served are skipped; the response has a warning (`tools.warnings_of`).

    Args:
        given: The `input` of a checked body.
        of: Hex digits that ids of items without one begin with.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [
        _whole(item, of, place)
        for place, item in enumerate(given)
        if item.get("type") not in SKIPPED_ITEMS
    ]


def _whole(item: Mapping[str, Any], of: str, place: int) -> Item:
    if is_reference(item):
        return {"type": ITEM_REFERENCE, "id": item["id"]}
    kind = item.get("type") or "message"
    named = {"id": item.get("id") or item_id(kind, of, f"i{place}"), "type": kind}
    rest = {key: value for key, value in item.items() if key not in named}
    if kind == "message":
        rest["content"] = _whole_content(item["role"], item["content"])
    elif kind == "reasoning":
        rest["summary"] = item.get("summary") or []
        return {**named, **rest}
    rest["status"] = item.get("status") or "completed"
    return {**named, **rest}


def _whole_content(role: str, content: str | Sequence[Mapping[str, Any]]) -> list[Item]:
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        content = [{"type": kind, "text": content}]
    return [_whole_part(part, kind) for part in content]


def _whole_part(part: Mapping[str, Any], kind: str) -> Item:
    if part["type"] == "refusal":
        return dict(part)
    if part["type"] == INPUT_IMAGE:
        return {**part, "detail": part.get("detail") or "auto"}
    more = {"annotations": part.get("annotations") or []} if kind == "output_text" else {}
    return {**part, "type": kind, **more}


def messages_of(items: Iterable[Mapping[str, Any]], instructions: str | None) -> list[Item]:
    """The chat messages of whole items.

    Instructions and the system's words that follow them are one message: many templates know one
    alone, and only at the beginning.

    Raises:
        InvalidRequest: A call without its output, or an output without its call.
    """
    messages: list[Item] = []
    head: list[str] = []
    if instructions:
        messages.append({"role": "system", "content": ""})
        head.append(instructions)
    thoughts: list[str] = []
    for item in items:
        kind = item["type"]
        if kind == "reasoning":
            thoughts.append(_text(item.get("content") or item["summary"]))
        elif kind == "function_call_output":
            output = item["output"]
            text = output if isinstance(output, str) else _text(output)
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
        elif kind == "function_call":
            turn = _open_turn(messages, "".join(thoughts))
            turn.setdefault("tool_calls", []).append(_tool_call(item))
            thoughts = []
        elif item["role"] in _FIRST and len(messages) == bool(head):
            if not messages:
                messages.append({"role": item["role"], "content": ""})
            head.append(_text(item["content"]))
            thoughts = []
        else:
            messages.append(_message(item, "".join(thoughts)))
            thoughts = []
    if head:
        messages[0]["content"] = "\n\n".join(head)
    _check_calls(messages)
    return messages


def _message(item: Mapping[str, Any], thoughts: str) -> Item:
    role, content = item["role"], item["content"]
    if any(part["type"] == INPUT_IMAGE for part in content):
        return {"role": role, "content": [_chat_part(part) for part in content]}
    made = {"role": role, "content": _text(content)}
    return {**made, "reasoning_content": thoughts} if thoughts and role == "assistant" else made


def _chat_part(part: Mapping[str, Any]) -> Item:
    if part["type"] != INPUT_IMAGE:
        return {"type": "text", "text": _text([part])}
    url = {"url": part["image_url"], "detail": part["detail"]}
    return {"type": images.IMAGE_PART, images.IMAGE_PART: url}


def _open_turn(messages: list[Item], thoughts: str) -> Item:
    """The model's turn that a call belongs to: the last message if it is the model's."""
    if thoughts or not messages or messages[-1]["role"] != "assistant":
        turn: Item = {"role": "assistant", "content": None}
        if thoughts:
            turn["reasoning_content"] = thoughts
        messages.append(turn)
    return messages[-1]


def _tool_call(item: Mapping[str, Any]) -> Item:
    name = flat_name(item["name"], item.get("namespace"))
    function = {"name": name, "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _text(parts: Iterable[Mapping[str, Any]]) -> str:
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    # Dictionaries as ordered sets: the first that is missing is named, and a look takes no time.
    called = dict.fromkeys(
        call["id"] for message in messages for call in message.get("tool_calls") or ()
    )
    answered = dict.fromkeys(
        message["tool_call_id"] for message in messages if message["role"] == "tool"
    )
    for one in answered:
        if one not in called:
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {one[:64]}.",
                param="input",
            )
    for one in called:
        if one not in answered:
            raise InvalidRequest(
                f"No tool output found for function call {one[:64]}.", param="input"
            )
