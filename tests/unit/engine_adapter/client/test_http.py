from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from engine_adapter.client.base import CHAT_PATH, EngineCall, RequestClass
from engine_adapter.client.http import ABORTS_AT_ONCE, GATHER_S, HttpEngineClient
from engine_adapter.client.rid import new_rid
from service.loop_turns import LoopTurns
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving

NUM_TOKENS = 3_000


async def test_a_fast_stream_is_read_in_groups_and_none_of_it_is_lost() -> None:
    """Two frames a rest at most: the one that made it due, and what the rest gathered."""
    async with serving(FakeEngine(FakeSettings(context_tokens=2 * NUM_TOKENS))) as url:
        client = HttpEngineClient(url)
        prompt = f"fake:tokens={NUM_TOKENS}"
        body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
        started = time.monotonic()
        stream = await client.stream(EngineCall(CHAT_PATH, body, new_rid(), RequestClass.ONLINE))
        frames = [frame async for frame in stream]
        took_s = time.monotonic() - started
        await stream.aclose()
        await client.close()
    events = [event for frame in frames for event in frame.events]
    assert frames[-1].done
    assert sum(b'"content":"' in event for event in events) >= NUM_TOKENS
    # Twice as many as that: timers may be a turn of the loop early.
    assert len(frames) <= 4 * (took_s / GATHER_S + 1)


async def test_an_answer_that_waits_for_its_turn_is_billed_even_if_nobody_wants_it_any_more() -> (
    None
):
    async with serving(FakeEngine(FakeSettings())) as url:
        client = HttpEngineClient(url, turns=LoopTurns(steps=0))  # a turn begins nothing
        body = {"model": "fake-model", "messages": [{"role": "user", "content": "fake:tokens=7"}]}
        call = EngineCall(CHAT_PATH, body, new_rid(), RequestClass.ONLINE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.call(call)
        await client.close()
    assert call.served.usage.completion_tokens == 7


async def test_many_aborts_at_once_share_a_few_connections() -> None:
    engine = FakeEngine(FakeSettings(context_tokens=1_000_000))
    async with serving(engine) as url, counted(url) as (counted_url, connections):
        client = HttpEngineClient(counted_url)
        await client.facts()
        body = {
            "model": "fake-model",
            "messages": [{"role": "user", "content": "fake:tokens=100000 fake:token_ms=20"}],
        }
        calls = [EngineCall(CHAT_PATH, body, new_rid(), RequestClass.ONLINE) for _ in range(50)]
        streams = await asyncio.gather(*map(client.stream, calls))
        before = len(connections)
        await asyncio.gather(*(stream.aclose() for stream in streams))
        assert not engine.running
        looks = 1  # beside the aborts, one look at what lives is under way
        assert len(connections) - before <= ABORTS_AT_ONCE + looks
        await client.close()


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[str, list[int]]]:
    """A way to a server on which each connection is noted."""
    port, connections = int(url.rpartition(":")[2]), list[int]()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
