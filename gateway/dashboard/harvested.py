"""What one batch or one project harvested: its tokens, and about the engine time they took.

Tokens are counted for each. Time is measured for engines alone: a token takes what one took in
the last 24 hours on average, so that it is said with "about".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from gateway.dashboard.resources import Resources
from gateway.history.reading import read
from gateway.verdict.harvest import Harvest
from gateway.verdict.reading import DAY, harvest_of
from store.models import Batch
from store.repositories import usage

CLASSES: Final = ("offline", "flex")
"""Classes of requests whose tokens are harvested."""


async def of_day(work: AsyncSession, resources: Resources) -> Harvest:
    """All that was harvested in the last 24 hours."""
    day = (await read(work, DAY, ("engine",))).whole
    return harvest_of(day.engines, resources.engine_pool.members, resources.settings.price)


def of_batch(batch: Batch, day: Harvest) -> Harvest:
    """What one batch came to so far."""
    computed = 1 - batch.num_repeats / max(1, batch.num_total)  # those that repeat cost nothing
    num_answer = round(batch.completion_tokens * computed)
    return day.part(batch.prompt_tokens - batch.cached_tokens + num_answer)


async def by_project(
    work: AsyncSession, organization_id: str, day: Harvest, *, since: date, until: date
) -> Mapping[str, Harvest]:
    """What the projects of an organisation harvested, the most first.

    Args:
        work: An open transaction.
        organization_id: Whose projects.
        day: See `of_day`.
        since: The first day.
        until: The day after the last.
    """
    lines = await usage.report(
        work,
        organization_id,
        since=since,
        until=until,
        by=("project_id",),
        only={"request_class": CLASSES},
    )
    tokens: dict[str, int] = {}
    for line in lines:
        count, project_id = line.count, line.group["project_id"]
        new = count.prompt_tokens - count.cached_tokens + count.completion_tokens
        tokens[project_id] = tokens.get(project_id, 0) + new
    ordered = sorted(tokens.items(), key=lambda item: -item[1])
    return {project_id: day.part(num) for project_id, num in ordered if num}
