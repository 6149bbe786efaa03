"""What an engine says of a request that it refuses, in our words: which field it is, and why.

An engine's own words may quote the request, name fields that callers do not have, or say nothing
to them. None of them leaves: a sentence that is not known here is about the prompt, since what is
left unknown is what templates of models say of messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from api.errors import InvalidRequest

PROMPT: Final = ""
"""In place of a field: the one that holds the prompt."""

_SENTENCES: Final = (
    (r"roles must alternate|alternate", PROMPT,
     "The model's template wants the roles 'user' and 'assistant' to take turns."),
    (r"system (role|message|prompt)", PROMPT,
     "The model's template takes no system message here."),
    (r"reasoning[_ ]effort", "reasoning_effort", "The model takes no such 'reasoning_effort'."),
    (r"embedding model", "model", "The model's engine makes no embeddings."),
    (r"count \d+ exceeds limit", PROMPT, "The model's engine takes no prompt with so many images."),
    (r"tool calls with constrained|multiple schemas", "tools",
     "The engine cannot hold calls of these tools by one grammar."),
    (r"^Tools cannot be empty", "tool_choice", "'tool_choice' is only allowed with 'tools'."),
    (r"^Tool '[^']*' not found", "tool_choice",
     "'tool_choice' names a function that is not among 'tools'."),
    (r"schema_ is required|Only one of regex, json_schema", "response_format",
     "The engine cannot hold an answer to this 'response_format'."),
    (r"\blora\b", "model", "The engine does not serve this model."),
)  # fmt: skip
_KNOWN: Final = [
    (re.compile(words, re.IGNORECASE), field, ours) for words, field, ours in _SENTENCES
]

_FIELDS: Final = {
    "min_new_tokens": "min_tokens",
    "max_new_tokens": "max_tokens",
    "sampling_seed": "seed",
    "json_schema": "response_format",
    "structural_tag": "response_format",
    **{
        name: name
        for name in (
            "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
            "repetition_penalty", "logit_bias", "stop_token_ids", "min_tokens", "max_tokens",
            "max_completion_tokens", "logprobs", "top_logprobs", "tool_choice", "tools",
            "response_format", "regex", "ebnf", "stop", "seed", "n", "messages", "prompt", "input",
            "model", "stream", "stream_options", "echo", "suffix", "user", "dimensions",
            "encoding_format", "parallel_tool_calls", "reasoning_effort", "chat_template_kwargs",
            "skip_special_tokens", "ignore_eos",
        )
    },
}  # fmt: skip
"""Names in an engine's words, and what callers set them with."""

_OF_FIELD: Final = re.compile(r"^'?(\w+)'? (?:must|should|has|is|requires?|cannot|of)\b")
_OF_TOOL: Final = re.compile(r"^Tool (\d+) function")
_PLACE: Final = re.compile(r"'loc': \(([^)]*)\)")
_STEP: Final = re.compile(r"[a-z][a-z_]*|\d+")
_TYPES: Final = frozenset({"str", "int", "float", "bool", "list", "dict", "none", "constrained"})


def in_our_words(message: str, prompt_param: str, tools: Sequence[str]) -> InvalidRequest:
    """The error for what an engine says of a request that it refuses.

    Args:
        message: Its words.
        prompt_param: Name of the field that holds the prompt.
        tools: Paths of the tools' schemas, in the order in which the engine has them.
    """
    tool = _OF_TOOL.match(message)
    if tool is not None:
        place = int(tool[1])
        param = tools[place] if place < len(tools) else "tools"
        return _refused(param, f"'{param}' is no JSON schema that the engine can read.")
    place_of = _PLACE.search(message)
    param = _path(place_of[1]) if place_of is not None else ""
    if param:
        return _refused(param, f"Invalid value for '{param}'.")
    for words, field, ours in _KNOWN:
        if words.search(message):
            return _refused(field or prompt_param, ours)
    named = _OF_FIELD.match(message)
    if named is not None and named[1] in _FIELDS:
        param = _FIELDS[named[1]]
        return _refused(param, f"Invalid value for '{param}': the engine does not take it.")
    return _refused(prompt_param, f"The engine cannot process this '{prompt_param}'.")


def _path(location: str) -> str:
    """Where a validator found a fault, as callers write it: `messages[0].content`.

    A validator names the kinds that it tried, too: what follows the first of them is its own.
    """
    steps = [step.strip(" '\"") for step in location.split(",")]
    path = ""
    for step in steps[steps[:1] == ["body"] :]:
        if not _STEP.fullmatch(step) or step in _TYPES:
            break
        if not path and step not in _FIELDS:
            return ""
        path += f"[{step}]" if step.isdigit() else f".{step}" if path else _FIELDS[step]
    return path


def _refused(param: Any, words: str) -> InvalidRequest:
    return InvalidRequest(words, param=param, code="invalid_value")
