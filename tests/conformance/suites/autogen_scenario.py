"""AutoGen's assistant calls a tool and answers in a form."""

from __future__ import annotations

import os
from typing import Any, Final

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

JOB: Final = "What is the weather in Paris? fake:call=get_weather"
CAN: Final[dict[str, Any]] = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
}


class Weather(BaseModel):
    degrees: int


def client() -> OpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(
        model=os.environ["CONFORMANCE_MODEL"],
        base_url=f"{os.environ['CONFORMANCE_URL']}/v1",
        api_key=os.environ["CONFORMANCE_KEY"],
        model_info=CAN,
    )


async def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"fake:text=18_degrees {city}"


async def get_numbers(city: str) -> str:
    """The weather in a city."""
    return 'fake:text={"degrees":18} ' + city


async def test_agent() -> None:
    agent = AssistantAgent("a", client(), tools=[get_weather], reflect_on_tool_use=True)
    said = (await agent.run(task=JOB)).messages
    assert said[-1].content == "18 degrees"


async def test_agent_streamed() -> None:
    agent = AssistantAgent(
        "a", client(), tools=[get_weather], reflect_on_tool_use=True, model_client_stream=True
    )
    last = [message async for message in agent.run_stream(task=JOB)][-1]
    assert last.messages[-1].content == "18 degrees"


async def test_form() -> None:
    # The official client parses calls of strict functions alone.
    tool = FunctionTool(get_numbers, description="The weather in a city.", strict=True)
    agent = AssistantAgent(
        "a", client(), tools=[tool], output_content_type=Weather, max_tool_iterations=2
    )
    job = JOB.replace("get_weather", "get_numbers")
    said = (await agent.run(task=job)).messages
    assert said[-1].content == Weather(degrees=18)
