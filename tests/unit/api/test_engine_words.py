"""None of an engine's own words leaves, and every refusal names a field and has a code."""

from __future__ import annotations

import pytest

from api.engine_errors import from_engine

TOOLS = {"f": "tools[0].function.parameters", "g": "tools[2].function.parameters"}

# What SGLang 0.5.16 says, from its sources; `SECRET` is what a caller sent.
SAID = [
    ("temperature must be a non-negative finite number, got SECRET.", "temperature"),
    ("min_p must be in [0, 1], got SECRET.", "min_p"),
    ("top_k must be -1 (disable) or at least 1, got SECRET.", "top_k"),
    ("repetition_penalty must be in (0, 2] (1.0 = no penalty), got SECRET.", "repetition_penalty"),
    ("min_new_tokens must be in [0, max_new_tokens], got SECRET.", "min_tokens"),
    ("max_new_tokens must be at least 0, got SECRET.", "max_tokens"),
    ("logit_bias must has keys in [0, 9], got SECRET.", "logit_bias"),
    ("Only one of regex, json_schema, or ebnf can be set.", "response_format"),
    ("schema_ is required for json_schema response format request.", "response_format"),
    ("Tool 1 function has invalid 'parameters' schema: stop must be SECRET", TOOLS["g"]),
    ("Tool 0 function 'parameters' schema is too deeply nested or contains", TOOLS["f"]),
    ("Tool 7 function has invalid 'parameters' schema: SECRET", "tools"),
    ("Tool definition 'SECRET' has multiple schemas, which is not supported.", "tools"),
    ("Tool 'SECRET' not found in tools list.", "tool_choice"),
    ("Tools cannot be empty if tool choice is set to required.", "tool_choice"),
    ("Cannot combine tool calls with constrained decoding (regex). Remove one.", "tools"),
    ("invalid reasoning effort: 'SECRET'", "reasoning_effort"),
    ("Harmony does not support reasoning effort SECRET", "reasoning_effort"),
    ("This model does not appear to be an embedding model by default.", "model"),
    ("Image count 3 exceeds limit 1 per request.", "messages"),
    ("Messages cannot be empty.", "messages"),
    ("Conversation roles must alternate user/assistant: SECRET", "messages"),
    ("Only user, assistant and tool roles are supported, with SECRET", "messages"),
    ("stop SECRET", "messages"),
    ("", "messages"),
    (
        "[{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, invalid reasoning "
        "effort', 'input': 'SECRET'}]",
        "reasoning_effort",
    ),
    (
        "[{'loc': ('body', 'messages', 2, 'ChatCompletionMessageUserParam', 'content', 'str'), "
        "'input': 'SECRET'}]",
        "messages[2]",
    ),
    ("[{'loc': ('body', 'tools', 0, 'function', 'name'), 'x': 1}]", "tools[0].function.name"),
    ("[{'loc': ('body', 'min_new_tokens'), 'input': 'SECRET'}]", "min_tokens"),
    ("[{'loc': ('body', 'rid'), 'input': 'SECRET'}]", "messages"),
    ("[{'loc': ('body',), 'input': 'SECRET'}]", "messages"),
]


@pytest.mark.parametrize(("said", "param"), SAID)
def test_in_our_words(said: str, param: str) -> None:
    error = from_engine(400, {"message": said}, tool_params=TOOLS)
    assert (error.status, error.param, error.code) == (400, param, "invalid_value")
    assert "SECRET" not in error.message
    assert not said or said not in error.message
    assert "''" not in error.message
