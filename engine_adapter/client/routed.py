"""Answers through a router of somebody else's, and all else straight with the engines.

A router decides which engine has a request, and does not say. So a request is aborted at every
engine of the pool: an id that an engine does not know is gone there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from api.errors import EngineUnavailable
from engine_adapter.client.base import EngineCall, EngineClient, EngineFacts, LiveRids
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.scheduling.policies.settings import Level


class RoutedEngineClient(HttpEngineClient):
    """A router's address, before the engines of a pool.

    Args:
        url: The router's address.
        engines: Those that may have a request.
        facts_of: What is known of the engines of a model.
    """

    def __init__(
        self,
        url: str,
        engines: Callable[[], Sequence[EngineClient]],
        facts_of: Callable[[str], EngineFacts | None],
    ) -> None:
        super().__init__(url)
        self._engines = engines
        self._known = facts_of

    async def abort(self, rid: str) -> bool:
        """See `EngineClient.abort`; an engine that does not answer has nothing to abort."""
        ends = await asyncio.gather(
            *(engine.abort(rid) for engine in self._engines()), return_exceptions=True
        )
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, EngineUnavailable):
                raise end
        return all(end is not False for end in ends)

    async def live_rids(self) -> LiveRids:
        """The live ids of all engines."""
        lives = [await engine.live_rids() for engine in self._engines()]
        return LiveRids(
            frozenset().union(*(live.waiting for live in lives)),
            frozenset().union(*(live.running for live in lives)),
        )

    async def set_level(self, level: Level) -> bool:
        """No level of its own: its engines are told themselves."""
        return False

    async def profile_anew(self) -> bool:
        """No profile of its own: its engines are told themselves."""
        return False

    async def _facts_for(self, call: EngineCall) -> EngineFacts | None:
        """A router says nothing of itself: what the pool knows of the model's engines."""
        return self._known(str(call.body.get("model", "")))
