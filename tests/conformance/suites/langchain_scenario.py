"""LangChain's agent calls a tool and answers in a form, by both of its strategies."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

JOB: Final = "What is the weather in Paris? fake:call=get_weather"
ASKED: Final = {"messages": [{"role": "user", "content": JOB}]}


class Weather(BaseModel):
    """The weather."""

    degrees: int


def chat(**more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=os.environ["CONFORMANCE_MODEL"],
        base_url=f"{os.environ['CONFORMANCE_URL']}/v1",
        api_key=os.environ["CONFORMANCE_KEY"],
        **more,
    )


@pytest.mark.parametrize("responses", [False, True])
def test_agent(responses: bool) -> None:
    @tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"fake:text=18_degrees {city}"

    agent = create_agent(chat(use_responses_api=responses), tools=[get_weather])
    assert agent.invoke(ASKED)["messages"][-1].text == "18 degrees"
    streamed = "".join(
        piece.text
        for piece, about in agent.stream(ASKED, stream_mode="messages")
        if about["langgraph_node"] == "model"
    )
    assert streamed.endswith("18 degrees")


@pytest.mark.parametrize("responses", [False, True])
def test_form_of_the_server(responses: bool) -> None:
    @tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return 'fake:text={"degrees":18} ' + city

    model = chat(use_responses_api=responses)
    agent = create_agent(model, tools=[get_weather], response_format=ProviderStrategy(Weather))
    assert agent.invoke(ASKED)["structured_response"] == Weather(degrees=18)


def test_form_by_a_tool() -> None:
    @tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return 'fake:call=Weather fake:arguments={"degrees":18} ' + city

    agent = create_agent(chat(), tools=[get_weather], response_format=ToolStrategy(Weather))
    assert agent.invoke(ASKED)["structured_response"] == Weather(degrees=18)


def test_structured_output() -> None:
    asked = 'How warm is it? fake:text={"degrees":18}'
    assert chat().with_structured_output(Weather).invoke(asked) == Weather(degrees=18)
