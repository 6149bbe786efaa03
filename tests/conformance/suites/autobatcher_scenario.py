"""autobatcher at its defaults finishes a job with a call of a tool, by background responses.

A real small model does not call by itself: there the first call is forced.
"""

from __future__ import annotations

import os
from typing import Any, Final

from autobatcher import BatchOpenAI

URL: Final = f"{os.environ['CONFORMANCE_URL']}/v1"
KEY: Final = os.environ["CONFORMANCE_KEY"]
MODEL: Final = os.environ["CONFORMANCE_MODEL"]
REAL: Final = bool(os.environ["CONFORMANCE_REAL"])
ANSWER: Final = "18 degrees"
QUESTION: Final = "What is the weather in Paris?"
JOB: Final = QUESTION if REAL else f"{QUESTION} fake:call=get_weather"
FORECAST: Final = ANSWER if REAL else "fake:text=18_degrees"
LIMIT: Final[dict[str, Any]] = {"max_output_tokens": 128} if REAL else {}


async def test_autobatcher() -> None:
    tool: dict[str, Any] = {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    async with BatchOpenAI(api_key=KEY, base_url=URL) as client:
        question = [{"role": "user", "content": JOB}]
        once = {"tool_choice": "required", "parallel_tool_calls": False}
        more: dict[str, Any] = {**LIMIT, **(once if REAL else {})}
        first = await client.responses.create(model=MODEL, input=question, tools=[tool], **more)
        call = first.output[-1]
        assert (call.type, call.name) == ("function_call", "get_weather")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": FORECAST}
        given = [*question, call.model_dump(exclude_none=True), result]
        again = await client.responses.create(model=MODEL, input=given, tools=[tool], **LIMIT)
    assert again.output_text.strip() if REAL else again.output_text == ANSWER
