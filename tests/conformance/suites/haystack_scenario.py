"""Haystack's agent calls a tool, on an engine whose sampler takes no seed."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import pytest
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from pydantic import BaseModel

JOB: Final = "What is the weather in Paris? fake:call=get_weather"


class Weather(BaseModel):
    degrees: int


def generator(**more: Any) -> OpenAIChatGenerator:
    return OpenAIChatGenerator(
        api_key=Secret.from_token(os.environ["CONFORMANCE_KEY"]),
        model=os.environ["CONFORMANCE_GPU"],
        api_base_url=f"{os.environ['CONFORMANCE_URL']}/v1",
        generation_kwargs={"seed": 1, "temperature": 0.7, **more},
    )


@tool
def get_weather(city: Annotated[str, "Which city"]) -> str:
    """The weather in a city."""
    return f"fake:text=18_degrees {city}"


@pytest.mark.parametrize("streamed", [False, True])
def test_agent(streamed: bool) -> None:
    pieces: list[str] = []
    watch = {"streaming_callback": lambda piece: pieces.append(piece.content)} if streamed else {}
    agent = Agent(chat_generator=generator(), tools=[get_weather], **watch)
    said = agent.run(messages=[ChatMessage.from_user(JOB)])["messages"]
    assert said[-1].text == "18 degrees"
    assert ("18" in "".join(pieces)) is streamed


def test_form() -> None:
    asked = [ChatMessage.from_user('How warm is it? fake:text={"degrees":18}')]
    (reply,) = generator(response_format=Weather).run(asked)["replies"]
    assert Weather.model_validate_json(reply.text or "") == Weather(degrees=18)
