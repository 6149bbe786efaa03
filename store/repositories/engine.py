"""Queries about engines: which there are, and what the services last saw of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Engine
from store.repositories.statements import changed

SILENT_S = 15.0
"""An engine that beat and is silent for so long is not used until it beats again."""

GONE_S = 60.0
"""One that is silent for so long is removed; it comes back by beating."""


MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine that the service uses.

    Attributes:
        draining: Nothing new is sent there.
        level: What it shall plan at; none: what it was started with.
    """

    url: str
    draining: bool
    level: str | None = None


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine as an operator sees it.

    Attributes:
        level: What an operator has set; none: what it was started with.
        added: Registered, not only named in ENGINE_URLS.
        num_rows: Rows of batches that its dispatcher holds; none where it has no dispatcher.
    """

    url: str
    name: str | None
    model: str | None
    level: str | None
    added: bool
    draining: bool
    num_rows: int | None


async def saw(
    session: AsyncSession, url: str, model: str, context_tokens: int, facts: Mapping[str, Any]
) -> None:
    """Remember what an engine said about itself just now."""
    values = {
        "model": model,
        "context_tokens": context_tokens,
        "facts": dict(facts),
        "seen_at": func.statement_timestamp(),
    }
    statement = insert(Engine).values(url=url, **values)
    await session.execute(statement.on_conflict_do_update(index_elements=["url"], set_=values))


async def list_all(session: AsyncSession) -> Sequence[Engine]:
    """Every engine ever seen, oldest first."""
    statement = select(Engine).order_by(Engine.created_at, Engine.url)
    return (await session.execute(statement)).scalars().all()


async def in_use(session: AsyncSession, static: Sequence[str]) -> list[EngineEntry]:
    """The engines that the service uses: those of ENGINE_URLS, then the registered ones.

    One that registered itself and has been silent for `SILENT_S` is not among them.

    Args:
        session: An open transaction.
        static: The addresses of ENGINE_URLS.
    """
    found = await session.execute(
        text(
            """
            SELECT url, level, added_at IS NOT NULL AS added, draining_at IS NOT NULL AS draining
            FROM engines
            WHERE url = ANY(:static) OR (added_at IS NOT NULL AND (beat_at IS NULL
              OR beat_at > statement_timestamp() - make_interval(secs => :silent_s)))
            ORDER BY added_at, url
            """
        ),
        {"static": list(static), "silent_s": SILENT_S},
    )
    known = {row.url: row for row in found}
    entries = [
        EngineEntry(url, known[url].draining, known[url].level)
        if url in known
        else EngineEntry(url, draining=False)
        for url in static
    ]
    entries += [
        EngineEntry(row.url, row.draining, row.level) for row in known.values() if row.added
    ]
    return list({entry.url: entry for entry in entries}.values())


async def add(session: AsyncSession, url: str) -> None:
    """Register an engine, or end its drain."""
    now = func.statement_timestamp()
    statement = insert(Engine).values(url=url, added_at=now)
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=["url"],
            set_={"added_at": func.coalesce(Engine.added_at, now), "draining_at": None},
        )
    )


async def arrive(session: AsyncSession, url: str) -> None:
    """An engine has started and says so: it is used, whatever was said of its address before."""
    await add(session, url)
    await beat(session, url)


async def beat(session: AsyncSession, url: str) -> None:
    """An engine is still there.

    An operator's drain of it stays; one that was removed meanwhile is registered again.
    """
    await session.execute(
        text(
            """
            INSERT INTO engines (url, created_at, added_at, beat_at)
            VALUES (:url, statement_timestamp(), statement_timestamp(), statement_timestamp())
            ON CONFLICT (url) DO UPDATE SET
              beat_at = excluded.beat_at,
              added_at = coalesce(engines.added_at, excluded.added_at),
              draining_at = CASE WHEN engines.added_at IS NOT NULL THEN engines.draining_at END
            """
        ),
        {"url": url},
    )


async def forget_silent(session: AsyncSession) -> list[str]:
    """Remove engines that stopped beating without a goodbye; their addresses."""
    found = await session.execute(
        text(
            """
            UPDATE engines
            SET added_at = NULL, beat_at = NULL, draining_at = statement_timestamp()
            WHERE beat_at < statement_timestamp() - make_interval(secs => :gone_s)
            RETURNING url
            """
        ),
        {"gone_s": GONE_S},
    )
    return list(found.scalars())


async def drain(session: AsyncSession, url: str) -> bool:
    """Send nothing new to an engine; whether it is known."""
    return await _change(session, url, draining_at=func.statement_timestamp())


async def resume(session: AsyncSession, url: str) -> bool:
    """End an engine's drain; whether it is known."""
    return await _change(session, url, draining_at=None)


async def set_level(session: AsyncSession, url: str, level: str | None) -> bool:
    """Have an engine plan at a level, also after it starts anew; whether it is known."""
    return await _change(session, url, level=level)


def is_name(text: str) -> bool:
    """Whether an engine may be called so."""
    return len(text) <= MAX_NAME_CHARS and (text.isprintable() and text == text.strip())


def called(url: str, name: str | None) -> str:
    """What an engine is called: its name, or its host and port where it has none."""
    return name or url.partition("://")[2] or url


async def name(session: AsyncSession, url: str, text: str) -> bool:
    """Call an engine something, or by its address again; whether it is known."""
    return await _change(session, url, name=text or None)


async def names(session: AsyncSession) -> dict[str, str]:
    """What every known engine is called, by its address."""
    found = await session.execute(select(Engine.url, Engine.name))
    return {url: called(url, name) for url, name in found}


async def remove(session: AsyncSession, url: str) -> bool:
    """Take an engine off the registry; whether it was there.

    Its address is remembered as draining, which is how a dispatcher at work there learns of it.
    """
    return await changed(
        session,
        update(Engine)
        .where(Engine.url == url, Engine.added_at.is_not(None))
        .values(added_at=None, beat_at=None, draining_at=func.statement_timestamp()),
    )


async def states(session: AsyncSession) -> list[EngineState]:
    """Every engine that is registered or was seen and is not removed, oldest first."""
    found = await session.execute(
        text(
            """
            SELECT e.url, e.name, e.model, e.level, e.added_at IS NOT NULL AS added,
                   e.draining_at IS NOT NULL AS draining,
                   CASE WHEN d.id IS NOT NULL THEN
                     (SELECT count(*) FROM batch_rows r
                      WHERE r.dispatcher_id = d.id AND r.status = 'leased') END AS num_rows
            FROM engines e LEFT JOIN dispatchers d ON d.engine_url = e.url
            ORDER BY e.created_at, e.url
            """
        )
    )
    return [EngineState(**row) for row in found.mappings()]


async def _change(session: AsyncSession, url: str, **values: Any) -> bool:
    return await changed(session, update(Engine).where(Engine.url == url).values(**values))
