"""`EngineClient` over a `FakeEngine` in the same process: for tests that need no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any

import orjson

from api.engine_errors import ENGINE_LOST
from api.errors import EngineNotReached, EngineUnavailable
from api.usage import TokenUsage
from engine_adapter.client.base import EngineCall, EngineFacts, EngineReply, LiveRids, StreamFrame
from engine_adapter.client.decoding import (
    decode_facts,
    decode_live,
    decode_reply,
    error_of,
    last_served,
)
from engine_adapter.client.encoding import engine_body
from engine_adapter.client.exchange import exchange
from engine_adapter.scheduling.policies.settings import LEVEL_KNOB, PROFILE_KNOB, Level
from tests.fakes.dialect import answer, events
from tests.fakes.engine import ConnectionBroken, FakeEngine, FakeSettings, Refused

__all__ = ["FakeEngine", "FakeEngineClient", "FakeSettings"]


class FakeEngineClient:
    """The fake engine's client; every answer passes through the same decoding as a real one."""

    def __init__(self, engine: FakeEngine | None = None, *, url: str = "fake://engine") -> None:
        self.engine = engine or FakeEngine()
        self._url = url

    @property
    def url(self) -> str:
        """A name, not an address."""
        return self._url

    async def call(self, call: EngineCall) -> EngineReply:
        self._reach()
        body = engine_body(call, stream=False, facts=self._facts())

        async def note_served(whole: dict[str, Any]) -> None:
            decode_reply(call, 200, orjson.dumps(whole))

        try:
            script = self.engine.script(call.path, body)
            whole = await exchange(
                asyncio.ensure_future(answer(self.engine, call.path, body, script)),
                timeout_s=call.timeout_s,
                drop=partial(self.abort, call.rid),
                heard=note_served,
            )
        except Refused as refused:
            return decode_reply(call, refused.status, orjson.dumps(refused.body))
        except (TimeoutError, ConnectionBroken) as error:
            raise EngineUnavailable(ENGINE_LOST) from error
        return decode_reply(call, 200, orjson.dumps(whole))

    async def stream(self, call: EngineCall) -> FakeStream:
        self._reach()
        body = engine_body(call, stream=True, facts=self._facts())
        try:
            script = self.engine.script(call.path, body)
            source = events(self.engine, call.path, body, script)
            async with asyncio.timeout(call.timeout_s):
                first = await anext(source)
        except Refused as refused:
            raise error_of(call, refused.status, orjson.dumps(refused.body)) from None
        except (TimeoutError, ConnectionBroken) as error:
            raise EngineUnavailable(ENGINE_LOST) from error
        return FakeStream(first, source, partial(self.engine.abort, call.rid))

    async def abort(self, rid: str) -> bool:
        self._reach()
        self.engine.abort(rid)
        for _ in range(200):
            if rid not in await self.live_rids():
                return True
            await asyncio.sleep(0.01)
        return False

    async def live_rids(self) -> LiveRids:
        self._reach()
        return decode_live(self.engine.server_info())

    async def facts(self) -> EngineFacts:
        self._reach()
        return self._facts()

    async def healthy(self) -> bool:
        return not self.engine.down

    async def set_level(self, level: Level) -> bool:
        self._reach()
        return all(self.engine.set_internal_state({LEVEL_KNOB: list(Level).index(level)}))

    async def profile_anew(self) -> bool:
        self._reach()
        return all(self.engine.set_internal_state({PROFILE_KNOB: 1}))

    async def close(self) -> None:
        """Nothing to close."""

    def _facts(self) -> EngineFacts:
        engine = self.engine
        return decode_facts(engine.server_info(), engine.models(), engine.model_info())

    def _reach(self) -> None:
        if self.engine.down:
            raise EngineNotReached("The engine cannot be reached.")


class FakeStream:
    """A streamed answer of the fake engine: one event a frame."""

    def __init__(
        self, first: bytes, source: AsyncGenerator[bytes, None], drop: Callable[[], None]
    ) -> None:
        self._first = first
        self._source = source
        self._drop = drop
        self._done = False

    async def __aiter__(self) -> AsyncIterator[StreamFrame]:
        yield StreamFrame([self._first])
        try:
            async for event in self._source:
                yield StreamFrame([event])
        except ConnectionBroken as error:
            raise EngineUnavailable(ENGINE_LOST) from error
        self._done = True
        yield StreamFrame([], done=True)

    async def aclose(self) -> TokenUsage | None:
        """Drop the request if it still runs."""
        if self._done:
            return None
        self._done = True
        self._drop()
        try:
            return last_served([event async for event in self._source])
        except ConnectionBroken:
            return None
        finally:
            await self._source.aclose()
