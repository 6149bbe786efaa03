"""Queries about usage: counters per (project, key, model, class, day)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Final, NamedTuple

from sqlalchemy import RowMapping, Select, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from store.models import Project, Usage


class UsageKey(NamedTuple):
    """Whose tokens: the class is a word, `online`, `flex` or `offline`; no key is `""`."""

    project_id: str
    key_id: str
    model: str
    request_class: str


@dataclass(frozen=True)
class UsageCount:
    """How many requests and tokens."""

    num_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: UsageCount) -> UsageCount:
        return UsageCount(
            self.num_requests + other.num_requests,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


async def add(session: AsyncSession, counts: Mapping[UsageKey, UsageCount]) -> None:
    """Add to today's counters (the day of the database's clock, UTC)."""
    if not counts:
        return
    # One order for everybody: two writers of the same counters cannot lock each other out.
    ordered = sorted(counts.items())
    await session.execute(
        text(
            """
            INSERT INTO usage AS u (project_id, key_id, model, request_class, day, num_requests,
                                    prompt_tokens, cached_tokens, completion_tokens)
            SELECT t.project_id, t.key_id, t.model, t.request_class,
                   CAST(timezone('UTC', statement_timestamp()) AS date),
                   t.requests, t.prompt, t.cached, t.completion
            FROM unnest(
              CAST(:project_ids AS text[]), CAST(:key_ids AS text[]), CAST(:models AS text[]),
              CAST(:classes AS text[]), CAST(:requests AS bigint[]), CAST(:prompt AS bigint[]),
              CAST(:cached AS bigint[]), CAST(:completion AS bigint[]))
            WITH ORDINALITY AS t(project_id, key_id, model, request_class, requests, prompt,
                                 cached, completion, place)
            ORDER BY t.place
            ON CONFLICT (project_id, key_id, model, request_class, day) DO UPDATE
            SET num_requests = u.num_requests + excluded.num_requests,
                prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
                cached_tokens = u.cached_tokens + excluded.cached_tokens,
                completion_tokens = u.completion_tokens + excluded.completion_tokens
            """
        ),
        {
            "project_ids": [key.project_id for key, _ in ordered],
            "key_ids": [key.key_id for key, _ in ordered],
            "models": [key.model for key, _ in ordered],
            "classes": [key.request_class for key, _ in ordered],
            "requests": [count.num_requests for _, count in ordered],
            "prompt": [count.prompt_tokens for _, count in ordered],
            "cached": [count.cached_tokens for _, count in ordered],
            "completion": [count.completion_tokens for _, count in ordered],
        },
    )


@dataclass(frozen=True)
class UsageLine:
    """What was used by one combination of the chosen columns, on one day.

    Attributes:
        day: Of the database's clock, UTC.
        group: Column -> value, for the columns asked for.
    """

    day: date
    group: Mapping[str, str]
    count: UsageCount


GROUPS: Final = UsageKey._fields
COUNTED: Final = tuple(one.name for one in fields(UsageCount))


async def report(
    session: AsyncSession,
    organization_id: str,
    *,
    since: date,
    until: date,
    by: Sequence[str] = GROUPS,
    only: Mapping[str, Collection[str]] | None = None,
) -> list[UsageLine]:
    """Counters of an organisation per day, added up over all columns but those in `by`.

    Args:
        session: An open transaction.
        organization_id: Whose projects.
        since: The first day.
        until: The day after the last.
        by: Some of `GROUPS`.
        only: Column -> the values it may have.
    """
    columns = [Usage.day, *(getattr(Usage, name) for name in by)]
    statement = _sums(columns, organization_id, since, until).order_by(*columns)
    for name, values in (only or {}).items():
        statement = statement.where(getattr(Usage, name).in_(values))
    found = (await session.execute(statement)).mappings()
    return [UsageLine(row["day"], {name: row[name] for name in by}, _count(row)) for row in found]


async def totals(
    session: AsyncSession, organization_id: str, *, since: date, until: date
) -> dict[UsageKey, UsageCount]:
    """What each project, key, model and class of an organisation has used in these days."""
    columns = [getattr(Usage, name) for name in GROUPS]
    found = await session.execute(_sums(columns, organization_id, since, until))
    return {
        UsageKey(**{name: row[name] for name in GROUPS}): _count(row) for row in found.mappings()
    }


def _count(sums: RowMapping) -> UsageCount:
    return UsageCount(**{name: int(sums[name]) for name in COUNTED})


def _sums(
    columns: Sequence[InstrumentedAttribute[Any]], organization_id: str, since: date, until: date
) -> Select[tuple[Any, ...]]:
    return (
        select(
            *columns,
            *(func.sum(getattr(Usage, name)).label(name) for name in COUNTED),
        )
        .join(Project, Project.id == Usage.project_id)
        .where(Project.organization_id == organization_id, Usage.day >= since, Usage.day < until)
        .group_by(*columns)
    )


async def list_for(session: AsyncSession, project_id: str) -> Sequence[Usage]:
    """A project's counters, newest day first."""
    statement = (
        select(Usage)
        .where(Usage.project_id == project_id)
        .order_by(Usage.day.desc(), Usage.key_id, Usage.model, Usage.request_class)
    )
    return (await session.execute(statement)).scalars().all()
