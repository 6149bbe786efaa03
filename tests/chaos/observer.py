"""What is seen from outside while processes die: rows in flight, and the next finished line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg

from engine_adapter.client.dialects import DIALECTS
from engine_adapter.client.engine_facts import VLLM
from engine_adapter.client.foreign_facts import queue_of
from tests.chaos.installation import Installation

AWAY_LIMIT_S = 120.0
POLL_INTERVAL_S = 0.03
ENGINE_LIMIT_S = 15.0
"""A real engine answers between two steps, and a step on a busy CPU takes seconds."""


@dataclass(frozen=True)
class InFlight:
    """Rows held by a dispatcher that lives, and requests that the engine has; the fewer count."""

    num_leased: int
    num_at_engine: int

    @property
    def num(self) -> int:
        return min(self.num_leased, self.num_at_engine)


class Observer:
    """Reads the product's database and the engine's live requests; waits while they are away."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._link: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._client = httpx.AsyncClient(timeout=ENGINE_LIMIT_S)
        self._one_at_a_time = asyncio.Lock()

    async def close(self) -> None:
        await self._client.aclose()
        if self._link is not None:
            await self._link.close()

    async def ask(
        self, query: str, given: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of one query; repeated until the database answers."""
        async with self._one_at_a_time, asyncio.timeout(AWAY_LIMIT_S):
            while True:
                try:
                    if self._link is None or self._link.closed:
                        self._link = await psycopg.AsyncConnection.connect(
                            self._installation.dsn, autocommit=True, connect_timeout=3
                        )
                    found = await self._link.execute(query.encode(), given)
                    return await found.fetchall() if found.description else []
                except (psycopg.OperationalError, AssertionError):
                    if self._link is not None:
                        with suppress(psycopg.Error):
                            await self._link.close()
                    self._link = None
                    await asyncio.sleep(POLL_INTERVAL_S)

    async def in_flight(self) -> InFlight:
        """Now. A dispatcher that has not beaten its heart for two seconds does not live."""
        found = await self.ask(
            "SELECT count(*) FROM batch_rows r JOIN dispatchers d ON d.id = r.dispatcher_id"
            " WHERE r.status = 'leased' AND d.heartbeat_at > clock_timestamp() - interval '2 s'"
        )
        return InFlight(int(found[0][0]), await self.at_engine())

    async def num_leased(self) -> int:
        """Rows that any dispatcher holds, dead or alive."""
        found = await self.ask("SELECT count(*) FROM batch_rows WHERE status = 'leased'")
        return int(found[0][0])

    async def at_engine(self) -> int:
        """Requests that the engine has now."""
        info = await self._ask_engine("/server_info")
        if info is not None and info.status_code == 404:
            metrics = await self._ask_engine("/metrics")
            return sum(queue_of(metrics.text if metrics else "", DIALECTS[VLLM].metrics) or ())
        if info is None or info.status_code != 200:
            return 0
        live = [state["coserve"]["live"] for state in info.json()["internal_states"]]
        return sum(len(one["waiting"]) + len(one["running"]) for one in live)

    async def engine_answers(self) -> bool:
        """Whether it says that it is well."""
        health = await self._ask_engine("/health")
        return health is not None and health.status_code == 200

    async def _ask_engine(self, path: str) -> httpx.Response | None:
        port = self._installation.engine_port
        if port is None:
            return None
        try:
            return await self._client.get(f"http://127.0.0.1:{port}{path}")
        except httpx.HTTPError:
            return None

    async def progress(self) -> dict[str, int]:
        """The number of the last result of every batch."""
        found = await self.ask("SELECT id, num_results FROM batches")
        return {str(batch_id): int(num) for batch_id, num in found}

    async def num_open(self) -> int:
        """Lines without a result; -1 while a batch is being validated."""
        found = await self.ask(
            "SELECT coalesce(sum(num_total - num_completed - num_failed), 0)::int,"
            " count(*) FILTER (WHERE status = 'validating') FROM batches"
        )
        return -1 if found[0][1] else int(found[0][0])

    async def next_line_at(self, before: Mapping[str, int], after_s: float) -> float | None:
        """When the first line finished after an instant, seconds since the epoch.

        `before` is `progress` from shortly before that instant: it spares reading every result.
        """
        found = await self.ask(
            """
            SELECT extract(epoch FROM min(r.created_at))::float8
            FROM batches b
            LEFT JOIN unnest(%(ids)s::text[], %(seqs)s::int[]) AS known(id, seq) ON known.id = b.id
            CROSS JOIN LATERAL (
              SELECT created_at FROM row_results
              WHERE batch_id = b.id AND seq > coalesce(known.seq, 0)
                AND created_at > to_timestamp(%(after)s)
              ORDER BY seq LIMIT 1) r
            WHERE b.num_results > coalesce(known.seq, 0)
            """,
            {"ids": list(before), "seqs": list(before.values()), "after": after_s},
        )
        return float(found[0][0]) if found and found[0][0] is not None else None
