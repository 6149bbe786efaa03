"""Every object inside a request body: the keys that are read, and those taken without effect.

A key that is neither is refused by its path; one that says nothing (null, or empty) is no request.
docs/engine-fields.md has the second table. Objects whose keys are the caller's own (`metadata`,
`logit_bias`, JSON schemas) and `chat_template_kwargs` have rules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.errors import InvalidRequest
from api.refused_fields import unknown_field

_MESSAGE: Final = ("role", "content", "name")
_OUTPUT: Final = ("id", "type", "status")

OBJECTS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(keys)
    for name, keys in {
        # Chat and completions
        "system": _MESSAGE,
        "developer": _MESSAGE,
        "user": _MESSAGE,
        "assistant": (
            *_MESSAGE, "refusal", "tool_calls", "reasoning_content",
        ),
        "tool": (*_MESSAGE, "tool_call_id"),
        "function": _MESSAGE,
        "text part": ("type", "text"),
        "refusal part": ("type", "refusal"),
        "image part": ("type", "image_url"),
        "image": ("url", "detail"),
        "tool call": ("id", "type", "function"),
        "called function": ("name", "arguments"),
        "tool of chat": ("type", "function"),
        "function of chat": ("name", "description", "parameters", "strict"),
        "tool choice": ("type", "function"),
        "allowed choice": ("type", "allowed_tools"),
        "allowed tools": ("mode", "tools"),
        "chosen function": ("name",),
        "format": ("type",),
        "schema format": ("type", "json_schema"),
        "named schema": ("name", "description", "schema", "strict"),
        "stream options": ("include_usage", "include_obfuscation"),
        # Responses
        "message item": (*_OUTPUT, "role", "content"),
        "function_call": (*_OUTPUT, "call_id", "name", "arguments", "namespace"),
        # Whose output it is, its call says: name and namespace are told from there.
        "function_call_output": (*_OUTPUT, "call_id", "output", "name", "namespace"),
        "reasoning": (*_OUTPUT, "summary", "content", "encrypted_content"),
        "item_reference": ("id", "type"),
        "background options": ("completion_window", "continuation_id"),
    "output part": ("type", "text", "annotations", "logprobs"),
        "reasoning part": ("type", "text"),
        "input_image": ("type", "image_url", "detail", "file_id"),
        "function tool": ("type", "name", "description", "parameters", "strict"),
        "namespace tool": ("type", "name", "description", "tools"),
        "named choice": ("type", "name", "namespace"),
        "allowed_tools": ("type", "mode", "tools"),
        "text": ("format", "verbosity"),
        "text schema": ("type", "name", "description", "schema", "strict"),
        "effort": ("effort", "summary", "generate_summary", "context", "mode"),
        "conversation": ("id",),
        # Conversations
        "conversation of items": ("metadata", "items"),
        "conversation's metadata": ("metadata",),
        "items": ("items",),
    }.items()
}  # fmt: skip

_CACHED: Final = "the beginnings of prompts are kept as long as there is room"
_ECHOED: Final = "it is part of an answer, and a client sends answers back whole"
_ALL_SHOWN: Final = "all tools are shown to the model, which calls them itself"

TAKEN_KEYS: Final[Mapping[str, str]] = {
    "cache_control": _CACHED,
    "prompt_cache_breakpoint": _CACHED,
    "annotations": _ECHOED,
    "parsed": _ECHOED,
    "parsed_arguments": _ECHOED,
    "index": _ECHOED,
    "phase": _ECHOED,
    "caller": _ECHOED,
    "created_by": _ECHOED,
    "defer_loading": _ALL_SHOWN,
    "allowed_callers": _ALL_SHOWN,
    "output_schema": _ALL_SHOWN,
    "async": _ALL_SHOWN,
    "continuous_usage_stats": "usage comes once, at the end of a stream",
}
"""Keys that clients send inside of objects and that change nothing of an answer, and why."""


REFUSED_KEYS: Final[Mapping[str, str]] = {
    "audio": "models here answer with text",
    "custom": "custom tools are not served: give a function with one string parameter",
}
"""Keys of OpenAI's objects that are not served, and what to do instead."""


def only(name: str, value: Mapping[str, Any], kind: str) -> None:
    """Refuse the first key of an object that is set and not read.

    Args:
        name: The object's path.
        value: The object.
        kind: Its name in `OBJECTS`.

    Raises:
        InvalidRequest: With the key's path as `param`.
    """
    known = OBJECTS[kind]
    if known.issuperset(value):
        return
    for key, inner in value.items():
        if key not in known and key not in TAKEN_KEYS and inner not in (None, "", [], {}):
            if key in REFUSED_KEYS:
                raise InvalidRequest(
                    f"'{name}.{key}' is not supported by this service: {REFUSED_KEYS[key]}.",
                    param=f"{name}.{key}",
                    code="unsupported_parameter",
                )
            raise unknown_field(key, known, at=name)
