"""Agent frameworks at their defaults, each finishing a job with a call of a tool.

Every one is given only an address, a key and a model. The fake engine is told in words what to say:
a call of the tool first, and what the tool gave then.

A real model that is small does not call by itself. So it has each job twice: at the framework's
defaults, which must end with an answer; and once more where the framework forces the first call,
which must be made. Its answers are cut at some tokens.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

URL: Final = f"{os.environ['CONFORMANCE_URL']}/v1"
KEY: Final = os.environ["CONFORMANCE_KEY"]
MODEL: Final = os.environ["CONFORMANCE_MODEL"]
REAL: Final = bool(os.environ["CONFORMANCE_REAL"])
ANSWER: Final = "18 degrees"
QUESTION: Final = "What is the weather in Paris?"
JOB: Final = QUESTION if REAL else f"{QUESTION} fake:call=get_weather"
FORECAST: Final = ANSWER if REAL else "fake:text=18_degrees"
LIMIT: Final[dict[str, Any]] = {"max_tokens": 128} if REAL else {}

one_loop = pytest.mark.asyncio(loop_scope="module")
"""Frameworks keep their client from one job to the next, and it keeps its loop."""

CALL_ONCE: Final[dict[str, Any]] = {"tool_choice": "required", "parallel_tool_calls": False}
"""A small model that is forced goes on to list the same call again, if it may."""

hows = pytest.mark.parametrize("forced", [False, True] if REAL else [False])


@pytest.fixture(autouse=True)
def _defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment that their documentation asks for, and nothing else."""
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)


def check(cities: list[str], answer: object, *, forced: bool) -> None:
    """The job is done: the tool was called, and there is an answer."""
    if not REAL:
        assert (len(cities), answer) == (1, ANSWER)
        return
    assert isinstance(answer, str)
    assert answer.strip()
    assert cities or not forced


def openai_agent(cities: list[str], *, forced: bool) -> Any:
    from agents import Agent, ModelSettings, function_tool, set_tracing_disabled

    set_tracing_disabled(True)  # its traces go to OpenAI

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return FORECAST

    # After the call it lets the model choose, by its own default.
    settings = ModelSettings(**LIMIT, **(CALL_ONCE if forced else {}))
    more = {"model_settings": settings} if REAL else {}
    return Agent(name="weather", instructions="Help.", model=MODEL, tools=[get_weather], **more)


@hows
@one_loop
async def test_openai_agents(forced: bool) -> None:
    from agents import Runner

    cities: list[str] = []
    result = await Runner.run(openai_agent(cities, forced=forced), JOB)
    check(cities, result.final_output, forced=forced)


@hows
@one_loop
async def test_openai_agents_streamed(forced: bool) -> None:
    from agents import Runner

    cities: list[str] = []
    result = Runner.run_streamed(openai_agent(cities, forced=forced), JOB)
    kinds = [event.type async for event in result.stream_events()]
    assert "raw_response_event" in kinds
    check(cities, result.final_output, forced=forced)


class Weather(BaseModel):
    degrees: int


FORM: Final = 'fake:text={"degrees":18}'
"""What the fake engine is told by a tool: so the agent's answer has its form."""


@pytest.mark.skipif(REAL, reason="a small model does not choose between a call and a form")
@one_loop
async def test_openai_agents_with_a_form() -> None:
    from agents import Agent, Runner, function_tool

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return FORM

    agent = Agent(name="weather", model=MODEL, tools=[get_weather], output_type=Weather)
    assert (await Runner.run(agent, JOB)).final_output == Weather(degrees=18)
    streamed = Runner.run_streamed(agent, JOB)
    async for _event in streamed.stream_events():
        pass
    assert streamed.final_output == Weather(degrees=18)


@pytest.mark.skipif(REAL, reason="a small model does not choose between a call and a form")
@one_loop
async def test_pydantic_ai_with_a_form() -> None:
    from pydantic_ai import Agent, NativeOutput

    agent = Agent(f"openai:{MODEL}", output_type=NativeOutput(Weather))

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return FORM

    assert (await agent.run(JOB)).output == Weather(degrees=18)


async def _read(_: Any, events: AsyncIterable[Any]) -> None:
    """With one of these pydantic-ai streams; a turn may have no event."""
    async for _event in events:
        pass


@hows
@one_loop
async def test_pydantic_ai(forced: bool) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability

    class CallsFirst(AbstractCapability):  # type: ignore[misc]
        def get_model_settings(self) -> Any:
            return lambda run: {**LIMIT, **(CALL_ONCE if run.run_step <= 1 else {})}

    cities: list[str] = []
    more: dict[str, Any] = {"model_settings": LIMIT} if REAL else {}
    if forced:
        more = {"capabilities": [CallsFirst()]}
    agent = Agent(f"openai:{MODEL}", instructions="Help.", **more)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return FORECAST

    result = await agent.run(JOB)
    check(cities, result.output, forced=forced)
    cities.clear()
    streamed = await agent.run(JOB, event_stream_handler=_read)
    check(cities, streamed.output, forced=forced)


@hows
def test_inspect(forced: bool) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import ToolFunction, tool

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

    choice: Any = ToolFunction("get_weather") if forced else "auto"
    task = Task(
        dataset=[Sample(input=JOB, target=ANSWER)],
        solver=[use_tools(get_weather(), tool_choice=choice), generate()],
        scorer=includes(),
    )
    (log,) = eval(task, model=f"openai/{MODEL}", display="none", **LIMIT)
    assert log.status == "success", log.error
    assert log.samples is not None
    check(cities, log.samples[0].output.completion, forced=forced)


@hows
def test_dspy(forced: bool) -> None:
    import dspy

    given = dspy.LM(f"openai/{MODEL}", cache=False, **LIMIT)
    function = {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    more = CALL_ONCE if forced else {}
    (asked,) = given(JOB, tools=[{"type": "function", "function": function}], **more)
    # Plain text where nothing was called.
    calls = asked["tool_calls"] if isinstance(asked, dict) else []
    names = [call["function"]["name"] for call in calls]
    assert set(names) <= {"get_weather"}
    (answer,) = given(f"{JOB} {FORECAST}")
    check(names, answer, forced=forced)
