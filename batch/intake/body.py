"""The body of one line: what every engine would refuse, judged before anything runs.

First what a line can have wrong in many places, all of it reported; then the rules of the online
endpoints, whose first finding is reported: nothing that the gateway would refuse may reach an
engine through a batch. Numbers are held to what engines said of the model. The cost is bounded by
the line's length. What else depends on the model (length of a text, templates) is answered by the
engine, for that line alone.
"""

from __future__ import annotations

from typing import Any, Final

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding, inputs_of
from api.errors import InvalidRequest
from api.numbers import UNKNOWN, ModelSizes, check_lengths, check_numbers
from api.responses.call import chat_call, check_alone
from api.rules import is_whole
from api.shared_rules import MAX_CHOICES
from batch.intake.line_error import LineNotes
from engine_adapter.client.base import COMPLETIONS_PATH, EMBEDDINGS_PATH, RESPONSES_PATH

MAX_MESSAGES: Final = 2048
PREFIX_CHARS: Final = 4096
"""How much of a prompt's beginning is kept to find lines that begin alike."""

_LENGTHS: Final = ("max_tokens", "max_completion_tokens")
_RANGES: Final = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_NUMBERS: Final = frozenset((*_LENGTHS, *_RANGES, "n"))
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def check_body(
    body: dict[str, Any], endpoint: str, notes: LineNotes, sizes: ModelSizes = UNKNOWN
) -> str:
    """Note what is wrong with a body; returns the first `PREFIX_CHARS` of its prompt.

    Args:
        body: Of the line.
        endpoint: Where it goes.
        notes: What is wrong is noted here.
        sizes: Of its model, as far as they are known.
    """
    prefix = _check_fields(body, endpoint, notes)
    if not notes.faults:
        try:
            check_numbers(body, sizes)
            check_lengths(body, sizes)
        except InvalidRequest as refused:
            _note(refused, notes)
    return prefix


def _check_fields(body: dict[str, Any], endpoint: str, notes: LineNotes) -> str:
    if endpoint == EMBEDDINGS_PATH:
        return _check_embedding(body, notes)
    if endpoint == RESPONSES_PATH:
        return _check_response(body, notes)
    _check_numbers(body, notes)
    is_completion = endpoint == COMPLETIONS_PATH
    prefix = _completion_prompt(body, notes) if is_completion else _chat_prompt(body, notes)
    if not any((fault.param or "").startswith("body.") for fault in notes.faults):
        try:
            (check_completion if is_completion else check_chat)(body)
        except InvalidRequest as refused:
            _note(refused, notes)
    return prefix


def _note(refused: InvalidRequest, notes: LineNotes) -> None:
    param = None if refused.param is None else f"body.{refused.param}"
    notes.add(refused.code or "invalid_value", refused.message, param)


def _check_embedding(body: dict[str, Any], notes: LineNotes) -> str:
    """The rules of the online endpoint; a line may hold many inputs."""
    if any((fault.param or "").startswith("body.") for fault in notes.faults):
        return ""
    try:
        check_embedding(body)
    except InvalidRequest as refused:
        _note(refused, notes)
        return ""
    first = inputs_of(body)[0]
    return (first if isinstance(first, str) else str(first[:PREFIX_CHARS]))[:PREFIX_CHARS]


def _check_response(body: dict[str, Any], notes: LineNotes) -> str:
    """The rules of the online endpoint, without all that needs a store."""
    if body.get("stream"):
        _no_streams(notes)
    if any((fault.param or "").startswith("body.") for fault in notes.faults):
        return ""
    try:
        check_alone(body)
    except InvalidRequest as refused:
        _note(refused, notes)
        return ""
    messages = chat_call(body)["messages"]
    return _chat_prefix(messages, notes)


def _no_streams(notes: LineNotes) -> None:
    notes.add("streaming_unsupported", "Lines of a batch cannot be streamed.", "body.stream")


def _check_numbers(body: dict[str, Any], notes: LineNotes) -> None:
    if body.get("stream"):
        _no_streams(notes)
    if _NUMBERS.isdisjoint(body):
        return
    for name in _LENGTHS:
        value = body.get(name)
        if value is None:
            continue
        if not is_whole(value):
            notes.wrong_type(f"body.{name}", "an integer", value)
        elif value < 1 and (name, value) != ("max_tokens", 0):  # completions may score
            notes.wrong_value(f"body.{name}", "must be at least 1")
    for name, (low, high) in _RANGES.items():
        value = body.get(name)
        if value is None:
            continue
        if type(value) not in (int, float):
            notes.wrong_type(f"body.{name}", "a number", value)
        elif not low <= value <= high:
            notes.wrong_value(f"body.{name}", f"must lie between {low} and {high}")
    _check_choices(body.get("n"), notes)


def _check_choices(num_choices: Any, notes: LineNotes) -> None:
    if num_choices is None:
        return
    if not is_whole(num_choices):
        notes.wrong_type("body.n", "an integer", num_choices)
    elif not 1 <= num_choices <= MAX_CHOICES:
        notes.add("too_many_choices", f"'body.n' must lie between 1 and {MAX_CHOICES}.", "body.n")


def _chat_prompt(body: dict[str, Any], notes: LineNotes) -> str:
    messages = body.get("messages")
    if messages is None:
        notes.missing("body.messages")
        return ""
    if not isinstance(messages, list):
        notes.wrong_type("body.messages", "a list", messages)
        return ""
    if not messages:
        notes.wrong_value("body.messages", "must not be empty")
    elif len(messages) > MAX_MESSAGES:
        notes.wrong_value("body.messages", f"must have at most {MAX_MESSAGES:,} messages")
    else:
        return _chat_prefix(messages, notes)
    return ""


def _chat_prefix(messages: list[Any], notes: LineNotes) -> str:
    beginning: list[str] = []
    num_chars = 0
    for index, message in enumerate(messages):
        param = f"body.messages[{index}]"
        if not isinstance(message, dict):
            notes.wrong_type(param, "an object", message)
            continue
        role = message.get("role")
        if role is None:
            notes.missing(f"{param}.role")
        elif role not in _ROLES if isinstance(role, str) else True:
            notes.wrong_value(f"{param}.role", f"must be one of {', '.join(sorted(_ROLES))}")
        content = message.get("content")
        if content is None:
            # An assistant's turn may consist of tool calls alone.
            if role != "assistant":
                notes.missing(f"{param}.content")
        elif not isinstance(content, str | list):
            notes.wrong_type(f"{param}.content", "a string or a list of parts", content)
        elif num_chars < PREFIX_CHARS:
            text = f"{role}\n{_text_of(content)}\n"
            beginning.append(text)
            num_chars += len(text)
    return "".join(beginning)[:PREFIX_CHARS]


def _text_of(content: str | list[Any]) -> str:
    if isinstance(content, str):
        return content
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _completion_prompt(body: dict[str, Any], notes: LineNotes) -> str:
    prompt = body.get("prompt")
    if prompt is None:
        notes.missing("body.prompt")
    elif not isinstance(prompt, str | list):
        notes.wrong_type("body.prompt", "a string or a list", prompt)
    elif not prompt:
        notes.wrong_value("body.prompt", "must not be empty")
    elif isinstance(prompt, str):
        return prompt[:PREFIX_CHARS]
    else:
        return str(prompt[:PREFIX_CHARS])[:PREFIX_CHARS]
    return ""
