"""Agent frameworks at their defaults, each finishing a job with a call of a tool.

Every one is given only an address, a key and a model. The fake engine is told in words what to say:
a call of the tool first, and what the tool gave then.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any, Final

import pytest

URL: Final = f"{os.environ['CONFORMANCE_URL']}/v1"
KEY: Final = os.environ["CONFORMANCE_KEY"]
MODEL: Final = os.environ["CONFORMANCE_MODEL"]
JOB: Final = "What is the weather in Paris? fake:call=get_weather"
FORECAST: Final = "fake:text=18_degrees"
ANSWER: Final = "18 degrees"

one_loop = pytest.mark.asyncio(loop_scope="module")
"""Frameworks keep their client from one job to the next, and it keeps its loop."""


@pytest.fixture(autouse=True)
def _defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment that their documentation asks for, and nothing else."""
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)


@one_loop
async def test_openai_agents() -> None:
    from agents import Agent, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)  # its traces go to OpenAI
    cities: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return FORECAST

    agent = Agent(name="weather", instructions="Help.", model=MODEL, tools=[get_weather])
    result = await Runner.run(agent, JOB)
    assert len(cities) == 1
    assert result.final_output == ANSWER


@one_loop
async def test_openai_agents_streamed() -> None:
    from agents import Agent, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    cities: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return FORECAST

    agent = Agent(name="weather", model=MODEL, tools=[get_weather])
    result = Runner.run_streamed(agent, JOB)
    kinds = [event.type async for event in result.stream_events()]
    assert "raw_response_event" in kinds
    assert (len(cities), result.final_output) == (1, ANSWER)


async def _read(_: Any, events: AsyncIterable[Any]) -> None:
    """With one of these pydantic-ai streams; a turn may have no event."""
    async for _event in events:
        pass


@one_loop
async def test_pydantic_ai() -> None:
    from pydantic_ai import Agent

    cities: list[str] = []
    agent = Agent(f"openai:{MODEL}", instructions="Help.")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return FORECAST

    result = await agent.run(JOB)
    assert (len(cities), result.output) == (1, ANSWER)
    streamed = await agent.run(JOB, event_stream_handler=_read)
    assert (len(cities), streamed.output) == (2, ANSWER)


def test_inspect() -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    cities: list[str] = []

    @tool
    def get_weather() -> Any:
        async def execute(city: str) -> str:
            """The weather in a city.

            Args:
                city: Which city.
            """
            cities.append(city)
            return FORECAST

        return execute

    task = Task(
        dataset=[Sample(input=JOB, target=ANSWER)],
        solver=[use_tools(get_weather()), generate()],
        scorer=includes(),
    )
    (log,) = eval(task, model=f"openai/{MODEL}", display="none")
    assert log.status == "success", log.error
    assert len(cities) == 1
    assert log.samples is not None
    assert log.samples[0].output.completion == ANSWER


def test_dspy() -> None:
    import dspy

    given = dspy.LM(f"openai/{MODEL}", cache=False)
    function = {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    (asked,) = given(JOB, tools=[{"type": "function", "function": function}])
    (call,) = asked["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert given(f"{JOB} {FORECAST}") == [ANSWER]
