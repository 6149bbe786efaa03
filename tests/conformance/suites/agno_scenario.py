"""Agno's agent calls a tool and answers in a form, by chat and by responses."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from agno.agent import Agent
from agno.models.openai import OpenAIChat, OpenAIResponses
from pydantic import BaseModel

JOB: Final = "What is the weather in Paris? fake:call=get_weather"


class Weather(BaseModel):
    degrees: int


def model(kind: Any) -> Any:
    return kind(
        id=os.environ["CONFORMANCE_MODEL"],
        base_url=f"{os.environ['CONFORMANCE_URL']}/v1",
        api_key=os.environ["CONFORMANCE_KEY"],
    )


kinds = pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])


@kinds
def test_agent(kind: Any) -> None:
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"fake:text=18_degrees {city}"

    agent = Agent(model=model(kind), tools=[get_weather], telemetry=False)
    assert agent.run(JOB).content.endswith("18 degrees")


@kinds
def test_form(kind: Any) -> None:
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return 'fake:text={"degrees":18} ' + city

    agent = Agent(model=model(kind), tools=[get_weather], output_schema=Weather, telemetry=False)
    assert agent.run(JOB).content == Weather(degrees=18)
