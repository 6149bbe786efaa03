"""What an assistant thought, in a history: each name that clients send is `reasoning_content`.

    reasoning          text
    thinking           text, or an object with `content`
    thinking_blocks    parts of type `thinking`, with `thinking`
    reasoning_details  parts of type `reasoning.text` with `text`, or of `reasoning.summary`

Clients that send answers back say the same under two of these names: that is one thought.
Signatures, ids and places in a list are those of another server, and say nothing to a template. A
part that cannot be read here (redacted, encrypted) is refused by its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api import rules
from api.errors import InvalidRequest

Body = dict[str, Any]
Read = Callable[[str, Any], str]

OURS: Final = "reasoning_content"
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def with_thoughts(body: Body) -> Body:
    """A chat body whose messages say `reasoning_content` alone; itself where they do.

    Raises:
        InvalidRequest: One of the other names has a wrong value, or two say different things.
    """
    messages = body.get("messages")
    if type(messages) is not list or not any(map(_has_other_names, messages)):
        return body
    return {**body, "messages": [_told(i, one) for i, one in enumerate(messages)]}


def _has_other_names(message: Any) -> bool:
    return (
        type(message) is dict
        and message.get("role") == "assistant"
        and not _READ.keys().isdisjoint(message)
    )


def _told(i: int, message: Any) -> Any:
    if not _has_other_names(message):
        return message
    made = {key: value for key, value in message.items() if key not in _READ}
    for name, read in _READ.items():
        if message.get(name) in _EMPTY:
            continue
        path = f"messages[{i}].{name}"
        thought = read(path, message[name])
        if made.get(OURS) not in (None, "", thought):
            raise rules.wrong(path, "says something else than another name of the same thought")
        made[OURS] = thought
    return made


def _text(name: str, value: Any) -> str:
    rules.string()(name, value)
    return str(value)


def _text_or_content(name: str, value: Any) -> str:
    if type(value) is dict:
        return _text(f"{name}.content", value.get("content"))
    return _text(name, value)


def _parts(texts: Mapping[str, str]) -> Read:
    def read(name: str, value: Any) -> str:
        rules.array_of(rules.obj)(name, value)
        return "".join(_part(f"{name}[{i}]", part, texts) for i, part in enumerate(value))

    return read


def _part(name: str, part: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    kind = part.get("type")
    if type(kind) is not str or kind not in texts:
        raise InvalidRequest(
            f"'{name}.type' must be one of {', '.join(texts)}: other thoughts cannot be read here.",
            param=f"{name}.type",
            code="unsupported_content",
        )
    return _text(f"{name}.{texts[kind]}", part.get(texts[kind]))


_READ: Final[Mapping[str, Read]] = {
    "reasoning": _text,
    "thinking": _text_or_content,
    "thinking_blocks": _parts({"thinking": "thinking"}),
    "reasoning_details": _parts({"reasoning.text": "text", "reasoning.summary": "summary"}),
}
