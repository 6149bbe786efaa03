"""Streams whose requests give way to others: no text twice, none missing, and what a seed drew."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

from engine_adapter.client.http import HttpEngineClient
from engine_adapter.liveness import verify_engine
from gateway.observability.runtime_metrics import FAMILIES, PREFIX
from gateway.settings import GatewaySettings
from store.session import Database
from tests.engine.forked_engine import forked_engine
from tests.fixtures.engine import START_LIMIT_S, tiny_settings
from tests.fixtures.online import Gateway, running_gateway

pytestmark = pytest.mark.thorough

NUM_FLEX = 2
NUM_ONLINE = 12
FLEX_TOKENS = 320
ONLINE_TOKENS = 60
FLEX = [f"Tell me about {i} ships on the sea." for i in range(NUM_FLEX)]
ONLINE = [f"Question number {i}: what now?" for i in range(NUM_ONLINE)]
GIVING_WAY = ("parks", "retracts", "undone_requests")
ROUNDS_AT_MOST = 10
"""Until a row gave way: the machine decides how far the flex rows are when the others arrive."""


@pytest_asyncio.fixture
async def gateway(
    engine_python: Path,
    tiny_model: Path,
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
) -> AsyncIterator[Gateway]:
    """Before an engine with few slots and few pages."""
    small = replace(
        tiny_settings(engine_python, tiny_model),
        max_running=6,
        kv_tokens=1024,
        dtype="float32",
    )
    with forked_engine(small, tmp_path) as engine:
        await verify_engine(engine.url, engine.model, START_LIMIT_S)
        settings = GatewaySettings(
            database_url=database_url, broker_url=broker_url, engine_urls=engine.url, home=tmp_path
        )
        async with running_gateway(database, settings, engine.model) as running:
            yield running


SEED = 7

Answers = dict[str, tuple[str, int]]
"""By prompt: the text that arrived, piece by piece, and the tokens it is said to have."""


@dataclass
class Streams:
    """Requests by one client, and what arrived."""

    gateway: Gateway
    client: AsyncOpenAI
    answers: Answers = field(default_factory=dict)

    async def read(
        self,
        prompt: str,
        max_tokens: int,
        tier: str,
        begun: asyncio.Event | None = None,
        *,
        seed: int = SEED,
    ) -> None:
        """One request to its end; `begun` is set by the first piece of its text.

        What gives way is drawn at temperature 1, where only its seed can make it the same again.
        """
        text, num_tokens = "", 0
        stream: AsyncStream[ChatCompletionChunk] = await self.client.chat.completions.create(  # type: ignore[call-overload]
            **self.gateway.chat(prompt, temperature=int(prompt in FLEX), seed=seed),
            max_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            service_tier=tier,
            extra_body={"ignore_eos": True},
        )
        async for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            num_tokens = chunk.usage.completion_tokens if chunk.usage else num_tokens
            if begun is not None and text:
                begun.set()
        self.answers[prompt] = (text, num_tokens)


async def assert_exported(gateway: Gateway, report: Mapping[str, Any]) -> None:
    """A real engine reports everything that `/metrics` promises, and it arrives there."""
    await gateway.app.state.engines.probe()
    async with gateway.http() as http:
        text = (await http.get("/metrics")).text
    missing = [
        (family.name, series.path)
        for family in FAMILIES
        for series in family.series
        if not all(f'{word}="{value}"' in text for word, value in series.labels.items())
        or not re.search(rf"^{PREFIX}{family.name}(_total)?{{engine=", text, re.M)
    ]
    assert missing == []
    steps = re.search(rf"^{PREFIX}steps_total{{.*}} (\S+)$", text, re.M)
    assert steps is not None
    assert float(steps[1]) >= report["steps"] > 0


async def beside_each_other(streams: Streams) -> None:
    """Flex requests, and once both are answered many online requests at one time."""
    begun = [asyncio.Event() for _ in FLEX]
    async with asyncio.TaskGroup() as group:
        for prompt, event in zip(FLEX, begun, strict=True):
            group.create_task(streams.read(prompt, FLEX_TOKENS, "flex", event))
        for event in begun:
            await event.wait()
        for prompt in ONLINE:
            group.create_task(streams.read(prompt, ONLINE_TOKENS, "default"))


@pytest.mark.contract("C-19", "S-22")
async def test_text_of_preempted_streams(gateway: Gateway) -> None:
    engine = HttpEngineClient(gateway.app.state.engines.members[0].url)
    async with gateway.client() as client:
        alone = Streams(gateway, client)
        for prompt in FLEX:
            await alone.read(prompt, FLEX_TOKENS, "default")
        for prompt in ONLINE:
            await alone.read(prompt, ONLINE_TOKENS, "default")
        other = Streams(gateway, client)
        await other.read(FLEX[0], FLEX_TOKENS, "default", seed=8)
        assert other.answers[FLEX[0]] != alone.answers[FLEX[0]]
        before = (await engine.facts()).raw["coserve"]
        gave_way: dict[str, int] = {}
        for _ in range(ROUNDS_AT_MOST):
            together = Streams(gateway, client)
            await beside_each_other(together)
            assert together.answers == alone.answers
            after = (await engine.facts()).raw["coserve"]
            gave_way = {name: after[name] - before[name] for name in GIVING_WAY}
            if sum(gave_way.values()) > 0:
                break
    await engine.close()
    await assert_exported(gateway, after)
    assert sum(gave_way.values()) > 0, gave_way
