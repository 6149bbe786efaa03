"""Queries about usage: counters per (project, key, model, class, day)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Project, Usage


@dataclass(frozen=True, order=True)
class UsageKey:
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
    today = func.date(func.timezone("UTC", func.statement_timestamp()))
    # One order for everybody: two writers of the same counters cannot lock each other out.
    rows = [
        {
            "project_id": key.project_id,
            "key_id": key.key_id,
            "model": key.model,
            "request_class": key.request_class,
            "day": today,
            "num_requests": count.num_requests,
            "prompt_tokens": count.prompt_tokens,
            "cached_tokens": count.cached_tokens,
            "completion_tokens": count.completion_tokens,
        }
        for key, count in sorted(counts.items())
    ]
    statement = insert(Usage).values(rows)
    added = statement.excluded
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=["project_id", "key_id", "model", "request_class", "day"],
            set_={
                "num_requests": Usage.num_requests + added.num_requests,
                "prompt_tokens": Usage.prompt_tokens + added.prompt_tokens,
                "cached_tokens": Usage.cached_tokens + added.cached_tokens,
                "completion_tokens": Usage.completion_tokens + added.completion_tokens,
            },
        )
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


GROUPS: Final = ("project_id", "key_id", "model", "request_class")


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
    columns = [getattr(Usage, name) for name in by]
    statement = (
        select(
            Usage.day,
            *columns,
            func.sum(Usage.num_requests),
            func.sum(Usage.prompt_tokens),
            func.sum(Usage.cached_tokens),
            func.sum(Usage.completion_tokens),
        )
        .join(Project, Project.id == Usage.project_id)
        .where(Project.organization_id == organization_id, Usage.day >= since, Usage.day < until)
        .group_by(Usage.day, *columns)
        .order_by(Usage.day, *columns)
    )
    for name, values in (only or {}).items():
        statement = statement.where(getattr(Usage, name).in_(values))
    lines = []
    for day, *rest in (await session.execute(statement)).all():
        group = dict(zip(by, rest[: len(by)], strict=True))
        lines.append(UsageLine(day, group, UsageCount(*(int(n) for n in rest[len(by) :]))))
    return lines


async def list_for(session: AsyncSession, project_id: str) -> Sequence[Usage]:
    """A project's counters, newest day first."""
    statement = (
        select(Usage)
        .where(Usage.project_id == project_id)
        .order_by(Usage.day.desc(), Usage.key_id, Usage.model, Usage.request_class)
    )
    return (await session.execute(statement)).scalars().all()
