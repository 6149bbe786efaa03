"""Writes the history every ten seconds, whether or not anybody looks.

What a gateway alone knows, its responses and the latencies of its streams, it adds itself. What
all gateways see, the engines' reports, is written by one of them: the holder of a lease, taken and
checked in the transaction that writes. What was seen last is kept beside the lease, so that a
takeover or a restart neither loses figures nor writes them twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from prometheus_client import Counter
from sqlalchemy.ext.asyncio import AsyncSession

from engine_adapter.client.pool import Member
from gateway.history.series import (
    NUM_CUMULATIVE,
    answer_figures,
    began_anew,
    engine_gauges,
    engine_totals,
    gained,
    stream_figures,
)
from gateway.observability.latency_metrics import LatencyMetrics
from service.clock import Clock
from store.failures import AWAY
from store.repositories import history
from store.repositories.history import Figures
from store.session import Database
from store.types import new_id

logger = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
STALE_S: Final = 3 * PERIOD_S
"""A writer that was silent for so long has lost its place."""
MAX_GAP_S: Final = 60.0
"""Nothing is written about a longer time without a writer: it would look like one busy step."""
COLLECT_EVERY: Final = 30

Totals = dict[str, dict[str, list[float]]]
"""What engines have counted, by address and series."""


class HistoryRecorder:
    """The part of the history that this gateway writes.

    Args:
        database: Where.
        latency: What this gateway's streams got.
        members: The engines, as the pool knows them.
        clock: For the gap since the last write.
        requests: What this gateway answered, by route and status.
    """

    def __init__(
        self,
        database: Database,
        latency: LatencyMetrics,
        members: Callable[[], Sequence[Member]],
        clock: Clock,
        requests: Counter | None = None,
    ) -> None:
        self._database = database
        self._latency = latency
        self._members = members
        self._clock = clock
        self._requests = requests
        self._owner = new_id("gw_")
        self._written: dict[tuple[str, str], list[float]] = {}
        self._num_writes = 0
        self._lock = asyncio.Lock()

    async def write(self, *, last: bool = False) -> bool:
        """Write what was gained since the last write; whether that worked.

        Args:
            last: This process ends: another one may take its place at once.
        """
        async with self._lock:
            return await self._write(last=last)

    async def _write(self, *, last: bool) -> bool:
        now = stream_figures(self._latency.streams)
        if self._requests is not None:
            now |= answer_figures(self._requests)
        new = [
            Figures(*key, figures)
            for key, total in now.items()
            if any(figures := gained(total, self._written.get(key)))
        ]
        try:
            async with self._database.unit_of_work() as session:
                await history.add(session, new)
            self._written = {key: [*total] for key, total in now.items()}
            async with self._database.unit_of_work() as session:
                await self._write_engines(session, last=last)
        except AWAY as error:
            logger.warning("history not written, will be repeated: %s", type(error).__name__)
            return False
        return True

    async def _write_engines(self, session: AsyncSession, *, last: bool) -> None:
        seen = await history.hold(session, self._owner, stale_s=STALE_S)
        if seen is None:
            return
        now_s = self._clock.now().timestamp()
        is_recent = 0 <= now_s - seen.get("at_s", 0.0) <= MAX_GAP_S
        known: Totals = seen["engines"] if is_recent else {}
        new: list[Figures] = []
        totals: Totals = {}
        for member in self._members():
            before = known.get(member.url)
            facts = member.facts if member.up else None
            total = totals[member.url] = engine_totals(facts) if facts else before or {}
            grown = _grown(total, before)
            counters = grown.pop("engine", [0.0] * NUM_CUMULATIVE)
            restarted = began_anew(total.get("engine", ()), (before or {}).get("engine"))
            gauges = engine_gauges(
                member.facts, up=member.up, draining=member.draining, restarted=restarted
            )
            new.append(Figures("engine", member.url, [*counters, *gauges]))
            new += [Figures(series, member.url, one) for series, one in grown.items() if any(one)]
        await history.add(session, new)
        await history.remember(
            session, {"at_s": now_s, "engines": totals}, owner="" if last else self._owner
        )
        self._num_writes += 1
        if self._num_writes % COLLECT_EVERY == 1:
            await history.collect(session)


def _grown(
    total: Mapping[str, Sequence[float]], before: Mapping[str, Sequence[float]] | None
) -> dict[str, list[float]]:
    """By series; nothing of an engine that is seen for the first time, whatever it counted."""
    if before is None:
        return {}
    return {series: gained(one, before.get(series)) for series, one in total.items()}
