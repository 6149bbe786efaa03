"""Requests of a project in flight at all gateways together (`concurrent_requests`).

Each is a member of a sorted set in Valkey, with the instant at which it is forgotten. Gateways put
that instant off for those they still serve, so what a killed gateway had comes free `HOLD_S` later.
While Valkey cannot be reached, each process keeps the limit alone, and once it is back, those that
began meanwhile are told to it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from redis.exceptions import RedisError

from api.errors import RateLimited
from gateway.auth.principal import Principal
from gateway.limits.limiter import RETRY_S
from gateway.limits.script import Script
from gateway.observability.metrics import Metrics
from service.broker import Broker
from store.types import new_id

logger = logging.getLogger(__name__)

HOLD_S: Final = 30.0
_BEATS_PER_HOLD: Final = 3
_UNREACHABLE = (RedisError, OSError, TimeoutError)

_SCRIPT: Final = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local hold = tonumber(ARGV[3])
if ARGV[1] == 'count' then
  return redis.call('ZCOUNT', KEYS[1], now, '+inf')
end
if ARGV[1] == 'leave' then
  redis.call('ZREM', KEYS[1], unpack(ARGV, 4))
  return 1
end
if ARGV[1] == 'enter' then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    return 0
  end
end
for i = 4, #ARGV do
  redis.call('ZADD', KEYS[1], now + hold, ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], hold)
return 1
"""


class Place:
    """One request's place among those of its project; left once, whatever comes of it."""

    def __init__(self, leave: Callable[[], None] | None = None) -> None:
        self._leave = leave

    def leave(self) -> None:
        if self._leave is not None:
            self._leave()


class RequestsAtOnce:
    """The places that requests of this process have.

    Invariant: `_held` are the requests that have entered and not left; a project without one has
    no entry.

    Attributes:
        due: Set while something that has left is not told.
    """

    def __init__(self, broker: Broker, metrics: Metrics, *, hold_s: float = HOLD_S) -> None:
        self._script = Script(broker, _SCRIPT)
        self._metrics = metrics
        self._hold_s = hold_s
        self._held: dict[str, set[str]] = {}
        self._left: dict[str, set[str]] = {}
        self.due = asyncio.Event()
        self._retry_at_s = -math.inf
        self._next_beat_s = -math.inf

    async def enter(self, principal: Principal) -> Place:
        """A place for a request; nothing is asked for projects without the limit.

        Raises:
            RateLimited: The project has as many as it may, here and at other gateways.
        """
        most, project_id = principal.concurrent_requests, principal.project_id
        if most is None:
            return Place()
        name = new_id("")
        is_free = await self._is_free(project_id, most, name)
        # Those that began while Valkey was away are counted here alone until they are told to it.
        if not is_free or len(self._held.get(project_id, ())) >= most:
            if is_free:
                self._tell_left(project_id, name)
            raise RateLimited(
                f"This project has {most:,} requests in flight, which is its limit. "
                "Please try again when one has ended."
            )
        self._held.setdefault(project_id, set()).add(name)
        return Place(lambda: self._leave(project_id, name))

    async def in_flight(self, project_id: str) -> int | None:
        """How many requests of a limited project are in flight; none where nobody knows."""
        try:
            return await self._run("count", project_id, 0, [])
        except _UNREACHABLE:
            return None

    async def tell(self) -> None:
        """Tell of what has left, and now and then that the rest is still here."""
        await self.flush()
        if time.monotonic() >= self._next_beat_s:
            self._next_beat_s = time.monotonic() + self.beat_s
            await self.beat()

    async def beat(self) -> None:
        """Put off the end of what is held."""
        for project_id, names in [*self._held.items()]:
            await self._tell("hold", project_id, names)

    async def flush(self) -> None:
        """Tell of what has left; what cannot be told is forgotten by the server in `hold_s`."""
        self.due.clear()
        left, self._left = self._left, {}
        for project_id, names in left.items():
            await self._tell("leave", project_id, names)

    async def close(self) -> None:
        await self._script.close()

    @property
    def beat_s(self) -> float:
        """How often the rest is told at least."""
        return self._hold_s / _BEATS_PER_HOLD

    async def _is_free(self, project_id: str, most: int, name: str) -> bool:
        if time.monotonic() >= self._retry_at_s:
            try:
                return bool(await self._run("enter", project_id, most, [name]))
            except _UNREACHABLE as error:
                logger.warning("requests in flight are counted here: %s", type(error).__name__)
                self._retry_at_s = time.monotonic() + RETRY_S
        self._metrics.rate_limit_fallbacks.inc()
        return True

    def _leave(self, project_id: str, name: str) -> None:
        held = self._held[project_id]
        held.discard(name)
        if not held:
            del self._held[project_id]
        self._tell_left(project_id, name)

    def _tell_left(self, project_id: str, name: str) -> None:
        self._left.setdefault(project_id, set()).add(name)
        self.due.set()

    async def _tell(self, word: str, project_id: str, names: set[str]) -> None:
        if time.monotonic() < self._retry_at_s:
            return
        try:
            await self._run(word, project_id, 0, sorted(names))
        except _UNREACHABLE as error:
            logger.warning("requests in flight not told: %s", type(error).__name__)
            self._retry_at_s = time.monotonic() + RETRY_S

    async def _run(self, word: str, project_id: str, most: int, names: list[str]) -> int:
        hold_ms = math.ceil(self._hold_s * 1000)
        found: int = await self._script.run(
            [f"coserve:live:{project_id}"], [word, most, hold_ms, *names]
        )
        return found
