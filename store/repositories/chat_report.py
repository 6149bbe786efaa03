"""Queries about what chat gets at engines that are not ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

FRESH_S = 3.0
"""A report counts for so long: a gateway writes several times within it."""

KEPT_S = 60.0


@dataclass(frozen=True, slots=True)
class ChatNow:
    """Chat at one engine.

    Attributes:
        num_open: Chat requests that are open there.
        pressure: The worst latency of the last seconds over its target; 0 where there was none.
    """

    num_open: int = 0
    pressure: float = 0.0


async def write(session: AsyncSession, gateway: str, found: Mapping[str, ChatNow]) -> None:
    """Tell what one gateway sees, by engine; what was told long ago is removed."""
    await session.execute(
        text(
            """
            INSERT INTO chat_reports (engine_url, gateway, num_open, pressure, updated_at)
            VALUES (:url, :gateway, :num_open, :pressure, statement_timestamp())
            ON CONFLICT (engine_url, gateway) DO UPDATE SET
              num_open = excluded.num_open, pressure = excluded.pressure,
              updated_at = excluded.updated_at
            """
        ),
        [
            {"url": url, "gateway": gateway, "num_open": one.num_open, "pressure": one.pressure}
            for url, one in sorted(found.items())
        ],
    )
    await session.execute(
        text(
            "DELETE FROM chat_reports"
            " WHERE updated_at < statement_timestamp() - make_interval(secs => :kept_s)"
        ),
        {"kept_s": KEPT_S},
    )


async def read(session: AsyncSession, url: str) -> ChatNow:
    """Chat at an engine, over all gateways that have told of it of late."""
    found = await session.execute(
        text(
            """
            SELECT coalesce(sum(num_open), 0) AS num_open, coalesce(max(pressure), 0) AS pressure
            FROM chat_reports
            WHERE engine_url = :url
              AND updated_at > statement_timestamp() - make_interval(secs => :fresh_s)
            """
        ),
        {"url": url, "fresh_s": FRESH_S},
    )
    row = found.one()
    return ChatNow(int(row.num_open), float(row.pressure))
