"""From an engine's errors to ours.

SGLang answers flat `{"object": "error", "message", "type", "param", "code": 400}`, sometimes
nested under `error`, sometimes `{"detail": …}` or plain text (row T-12). Its messages may
quote the request or its own internals: none is passed on (`api.engine_words`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.engine_words import in_our_words
from api.errors import (
    ApiError,
    ContextLengthExceeded,
    EngineUnavailable,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    PayloadTooLarge,
    RequestFailedAlone,
)
from api.tool_calls import offer_of
from api.tool_prompt import may_call

_MAX_MESSAGE_CHARS = 300
_NUMBER = re.compile(r"\d+")
_TOO_LONG = re.compile(
    r"longer than the model's context|exceeds? the model's|maximum allowed length|context length",
    re.IGNORECASE,
)
_VLLMS_LENGTHS = re.compile(
    r"maximum context length is (\d+) tokens.*?"
    r"contains (?:at least )?(\d+) (input tokens|characters)"
)
"""vLLM names the limit first; of a very long prompt it counts only the characters."""
_TOO_MANY_NEW = re.compile(r"^max_(completion|new)_tokens is too large", re.IGNORECASE)
_OTHER_DIMENSIONS = re.compile(r"matryoshka|dimensions", re.IGNORECASE)
_INTERNAL = re.compile(r"Traceback|File \"|/[\w.-]+/[\w./-]+|'input'|validation error|\n")
_NOT_COMPILED = re.compile(
    r"^Failed to compile \w+ grammar: *(?:function '(?P<function>[\w.-]+)': )?(?P<why>.*)",
    re.DOTALL,
)
"""The compiler's words; before them our plugin's, where a function's arguments are at fault."""
NO_TOOLS: Final[Mapping[str, str]] = {}
_TOO_LONG_TO_COMPILE = "Grammar preprocessing timed out"
_NAMED = re.compile(r"^Invalid (?:value|type) for '(\w+)': [^'\n]+$")
"""What our plugin says of one request."""

PROMPT_SHARE: Final = 0.75
"""Of the context, for a prompt that was shortened."""

ENGINE_LOST = "The engine that served this request went away. Please try again."
ENGINE_FAILED = "The engine failed to process this request."
UNREADABLE: Final = "The engine's answer could not be read."
FAILED_ALONE: Final = "The engine failed on this request, and on no other that ran with it."
"""What our plugin says of it; sending it again would end the same way."""


def from_engine(
    status: int,
    body: Any,
    *,
    prompt_param: str = "messages",
    schema_param: str = "response_format",
    tool_params: Mapping[str, str] = NO_TOOLS,
    length: tuple[str, int] = ("max_tokens", 0),
) -> ApiError:
    """The error to give the caller for an engine's error answer.

    Args:
        status: HTTP status of the answer, or the code inside a stream's error event.
        body: Parsed JSON, or text.
        prompt_param: Name of the field that holds the prompt: `messages`, `prompt` or `input`.
        schema_param: Name of the field that holds what the answer must look like.
        tool_params: Names of the fields that hold the arguments of functions, by function.
        length: Name and value of the field that says the answer's longest length.
    """
    message = message_of(body)
    if status in (400, 422):
        not_compiled = _NOT_COMPILED.match(message)
        if not_compiled is not None:
            function, why = not_compiled["function"], not_compiled["why"]
            return _bad_schema(why, tool_params.get(function or "", schema_param))
        if FAILED_ALONE in message:
            return RequestFailedAlone(FAILED_ALONE)
        if message.startswith(_TOO_LONG_TO_COMPILE):
            return _bad_schema("it takes too long", schema_param)
        return _bad_request(message, prompt_param, length, [*tool_params.values()])
    if status == 404:
        return ModelNotFound("The engine does not serve this model.", param="model")
    if status == 413:
        return PayloadTooLarge("The request is too large for the engine.")
    if status in (429, 503):
        return Overloaded("The engine has no room for this request at the moment.")
    if status in (499, 502, 504):
        return EngineUnavailable(ENGINE_LOST)
    return InternalError(ENGINE_FAILED, code="engine_error")


def from_stream_error(
    error: Any,
    *,
    prompt_param: str = "messages",
    schema_param: str = "response_format",
    tool_params: Mapping[str, str] = NO_TOOLS,
) -> ApiError:
    """The error for an error event in the middle of a stream (row S-16)."""
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) else 500
    return from_engine(
        status,
        error,
        prompt_param=prompt_param,
        schema_param=schema_param,
        tool_params=tool_params,
    )


def schema_param(body: Mapping[str, Any]) -> str:
    """The field whose schema the engine compiled: a form of the answer, or the tools' own."""
    offer = offer_of(body)
    if offer is None or offer.formed:
        return next((name for name in ("regex", "ebnf") if body.get(name)), "response_format")
    fields = tool_params(body)
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return fields.get(choice["function"]["name"], "tools")
    if len(fields) == 1:
        return next(iter(fields.values()))
    return "functions" if body.get("functions") else "tools"


def tool_params(body: Mapping[str, Any]) -> dict[str, str]:
    """Names of the fields that hold the arguments of functions that may be called, by function."""
    offered = {tool["function"]["name"] for tool in may_call(body)}
    path = "functions[{}].parameters" if body.get("functions") else "tools[{}].function.parameters"
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    return {name: path.format(place) for place, name in enumerate(names) if name in offered}


def length_of(body: Mapping[str, Any]) -> tuple[str, int]:
    """Name and value of the field that says how long a chat's or completion's answer may be."""
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    return name, body.get(name) or 0


def aborted() -> ApiError:
    """The engine dropped the request by itself: nobody here asked for it."""
    return EngineUnavailable(ENGINE_LOST)


def is_retryable(error: ApiError) -> bool:
    """Whether sending the same call again may succeed."""
    return error.status >= 500 or error.status == 429


def share_that_fits(message: str) -> float:
    """How much of a prompt would fit, by the message of a `ContextLengthExceeded`.

    Where the request leaves the answer's length open, a quarter of the context is for it; without
    numbers in the message it is half of the prompt.
    """
    numbers = [int(number) for number in _NUMBER.findall(message)]
    if len(numbers) >= 4:
        limit, _, prompt, completion = numbers[:4]
        return (limit - completion) / max(1, prompt)
    if len(numbers) >= 2:
        limit, prompt = numbers[:2]
        return PROMPT_SHARE * limit / max(1, prompt)
    return 0.5


def message_of(body: Any) -> str:
    """What an engine's answer says went wrong, in whichever of its forms."""
    for key in ("error", "message", "detail"):
        if isinstance(body, Mapping) and body.get(key):
            return message_of(body[key])
    return body if isinstance(body, str) else ""


def _bad_request(
    message: str, prompt_param: str, length: tuple[str, int], tools: Sequence[str]
) -> InvalidRequest:
    named = _NAMED.match(message)
    if named is not None:
        param = prompt_param if named[1] == "prompt" else named[1]
        words = message.replace("'prompt'", f"'{param}'", 1).rstrip(".") + "."
        return InvalidRequest(words, param=param, code="invalid_value")
    if _TOO_MANY_NEW.search(message):
        numbers = _NUMBER.findall(message)
        limit = f" It supports at most {numbers[1]} tokens." if len(numbers) > 1 else ""
        return InvalidRequest(
            f"The requested answer is longer than the model's context.{limit}",
            param="max_completion_tokens" if prompt_param == "messages" else "max_tokens",
            code="invalid_value",
        )
    if message.startswith("Requested token count") and len(_NUMBER.findall(message)) >= 4:
        return _no_room(message, *length)
    if _TOO_LONG.search(message):
        return ContextLengthExceeded(_context_message(message), param=prompt_param)
    if prompt_param == "input" and _OTHER_DIMENSIONS.search(message):
        return InvalidRequest(
            "This model cannot make vectors of so many dimensions.",
            param="dimensions",
            code="invalid_value",
        )
    return in_our_words(message, prompt_param, tools)


def _bad_schema(why: str, param: str) -> InvalidRequest:
    """The grammar compiler quotes the schema and its own sources; our own limits' words do not."""
    known = bool(why) and not _INTERNAL.search(why) and len(why) <= _MAX_MESSAGE_CHARS
    reason = f": {why}" if known else ""
    return InvalidRequest(
        f"The engine cannot compile the schema in '{param}'{reason.rstrip('.')}.",
        param=param,
        code="invalid_value",
    )


def _no_room(message: str, name: str, asked: int) -> ContextLengthExceeded:
    """The prompt fits, the answer does not fit beside it: what to lower, and to what."""
    limit, _, prompt, sent = (int(number) for number in _NUMBER.findall(message)[:4])
    completion = max(asked, sent)
    return ContextLengthExceeded(
        f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{prompt + completion} tokens ({prompt} in the prompt, {completion} in the completion). "
        f"With this prompt '{name}' can be at most {limit - prompt}.",
        param=name,
    )


def _context_message(message: str) -> str:
    """A message with limit and size, as far as the engine's has them (row T-25)."""
    numbers = [int(number) for number in _NUMBER.findall(message)]
    vllms = _VLLMS_LENGTHS.search(message)
    if vllms is not None:
        if vllms[3] == "characters":
            return (
                f"The prompt is longer than the model's context of {vllms[1]} tokens. "
                "Please reduce its length."
            )
        numbers = [int(vllms[2]), int(vllms[1])]
    if len(numbers) >= 2:
        return (
            f"This model's maximum context length is {numbers[1]} tokens. However, "
            f"your prompt resulted in {numbers[0]} tokens. Please reduce its length."
        )
    return "The prompt is longer than the model's context. Please reduce its length."
