"""Shapes of bodies that no pydantic model makes, for the generated description.

Chat, completions and embeddings are built and checked as plain objects, for speed; what is said of
them here is what `api` makes and accepts.
"""

from __future__ import annotations

from typing import Any, Final

Shape = dict[str, Any]


def _object(required: dict[str, Shape], **optional: Shape) -> Shape:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": True,
    }


def _array(items: Shape, **limits: int) -> Shape:
    return {"type": "array", "items": items, **limits}


def _word(*words: str | None) -> Shape:
    return {"enum": list(words)}


_TEXT: Final[Shape] = {"type": "string"}
_COUNT: Final[Shape] = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL: Final[Shape] = {"type": ["string", "null"]}
_ANY_OR_NULL: Final[Shape] = {"type": ["object", "null"]}
_SOME_TEXT: Final[Shape] = {"type": "string", "minLength": 1}
_TOKENS: Final[Shape] = _array({"type": "integer", "minimum": 0, "maximum": 48_000}, minItems=1)

ERROR: Final = _object(
    {
        "error": _object(
            {
                "message": _TEXT,
                "type": _TEXT,
                "param": _TEXT_OR_NULL,
                "code": _TEXT_OR_NULL,
            }
        )
    }
)

_USAGE: Final = _object(
    {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": _object({"cached_tokens": _COUNT}),
        "completion_tokens_details": _object({"reasoning_tokens": _COUNT}),
    }
)
_FINISH: Final = _word("stop", "length", "tool_calls", "content_filter", "function_call")
_TOOL_CALL: Final = _object(
    {
        "id": _TEXT,
        "type": _word("function"),
        "function": _object({"name": _TEXT, "arguments": _TEXT}),
    }
)
_MESSAGE: Final = _object(
    {"role": _word("assistant"), "content": _TEXT_OR_NULL, "refusal": _TEXT_OR_NULL},
    tool_calls=_array(_TOOL_CALL),
    function_call=_object({"name": _TEXT, "arguments": _TEXT}),
)


def _reply(name: str, choice: Shape) -> Shape:
    return _object(
        {
            "id": _TEXT,
            "object": _word(name),
            "created": _COUNT,
            "model": _TEXT,
            "choices": _array(choice, minItems=1),
            "usage": _USAGE,
        },
        service_tier=_word("default", "flex"),
    )


CHAT_COMPLETION: Final = _reply(
    "chat.completion",
    _object(
        {
            "index": _COUNT,
            "message": _MESSAGE,
            "logprobs": _ANY_OR_NULL,
            "finish_reason": _FINISH,
        }
    ),
)
COMPLETION: Final = _reply(
    "text_completion",
    _object({"index": _COUNT, "text": _TEXT, "logprobs": _ANY_OR_NULL, "finish_reason": _FINISH}),
)
EMBEDDINGS: Final = _object(
    {
        "object": _word("list"),
        "data": _array(
            _object(
                {
                    "object": _word("embedding"),
                    "index": _COUNT,
                    "embedding": {"anyOf": [_array({"type": "number"}), _TEXT]},
                }
            ),
            minItems=1,
        ),
        "model": _TEXT,
        "usage": _object({"prompt_tokens": _COUNT, "total_tokens": _COUNT}),
    }
)
MODEL: Final = _object(
    {"id": _TEXT, "object": _word("model"), "created": _COUNT, "owned_by": _TEXT}
)
MODELS: Final = _object({"object": _word("list"), "data": _array(MODEL)})
READINESS: Final = _object({"status": _word("ready", "starting", "stopping")})
STATUS: Final = _object(
    {
        "status": _word("ok", "degraded"),
        "verdict": {"type": "object"},
        "parts": {"type": "object"},
        "models": _array({"type": "object"}),
    }
)

CHAT_REQUEST: Final = _object(
    {
        "model": _TEXT,
        "messages": _array(
            {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": _word("developer", "system", "user", "assistant"),
                    "content": _SOME_TEXT,
                },
            },
            minItems=1,
        ),
    },
    max_completion_tokens={"type": ["integer", "null"], "minimum": 1},
    temperature={"type": ["number", "null"], "minimum": 0, "maximum": 2},
    n={"type": ["integer", "null"], "minimum": 1, "maximum": 128},
    stream={"type": ["boolean", "null"]},
)
COMPLETION_REQUEST: Final = _object(
    {"model": _TEXT, "prompt": {"anyOf": [_SOME_TEXT, _array(_SOME_TEXT, minItems=1), _TOKENS]}},
    max_tokens={"type": ["integer", "null"], "minimum": 1},
    temperature={"type": ["number", "null"], "minimum": 0, "maximum": 2},
    stream={"type": ["boolean", "null"]},
)
EMBEDDINGS_REQUEST: Final = _object(
    {"model": _TEXT, "input": {"anyOf": [_SOME_TEXT, _array(_SOME_TEXT, minItems=1), _TOKENS]}},
    encoding_format=_word("float", "base64", None),
    dimensions={"type": ["integer", "null"], "minimum": 1},
)

_ITEM_GIVEN: Final = _object(
    {"role": _word("developer", "system", "user", "assistant"), "content": _SOME_TEXT}
)
_ITEM: Final = _object({"type": _TEXT}, id=_TEXT)
RESPONSE: Final = _object(
    {
        "id": _TEXT,
        "object": _word("response"),
        "created_at": _COUNT,
        "status": _word("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
        "model": _TEXT,
        "output": _array(_ITEM),
        "error": _ANY_OR_NULL,
        "incomplete_details": _ANY_OR_NULL,
        "parallel_tool_calls": {"type": "boolean"},
        "tool_choice": {"type": ["string", "object"]},
        "tools": _array({"type": "object"}),
        "usage": _ANY_OR_NULL,
    }
)
RESPONSE_REQUEST: Final = _object(
    {"model": _TEXT, "input": {"anyOf": [_TEXT, _array(_ITEM_GIVEN, minItems=1)]}},
    instructions={"type": ["string", "null"]},
    max_output_tokens={"type": ["integer", "null"], "minimum": 1},
    temperature={"type": ["number", "null"], "minimum": 0, "maximum": 2},
    stream={"type": ["boolean", "null"]},
)
CONVERSATION_REQUEST: Final = _object({}, metadata=_ANY_OR_NULL)
CONVERSATION_ITEMS_REQUEST: Final = _object({"items": _array(_ITEM_GIVEN, minItems=1, maxItems=20)})
