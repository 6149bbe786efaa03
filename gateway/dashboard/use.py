"""What of a project counts against its limits, for its page and for that of usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from gateway.dashboard import wording
from gateway.dashboard.resources import Resources
from gateway.limits.rates import Rates
from store.models import Project
from store.repositories import quota

MAX_LIMITED: Final = 50
"""Projects whose use is counted for a list of them; each has a page of its own."""


@dataclass(frozen=True)
class Use:
    """One thing that may be limited.

    Attributes:
        num: How much there is; none where nobody knows.
        limit: None where there is none.
        is_bytes: Said as a size, not as a number.
    """

    name: str
    num: int | None
    limit: int | None
    is_bytes: bool = False

    @property
    def percent(self) -> float | None:
        """Of the limit, 100 at most; none without one."""
        if self.num is None or self.limit is None:
            return None
        return 100.0 if self.limit == 0 else min(100.0, 100 * self.num / self.limit)

    @property
    def tone(self) -> str:
        """The kind of colour that goes with it."""
        percent = self.percent or 0.0
        return "bad" if percent >= 100 else "warn" if percent >= 80 else "run"

    @property
    def used(self) -> str:
        """What is used, in words; a dash where that is not known."""
        return "–" if self.num is None else self._said(self.num)

    @property
    def most(self) -> str:
        """The limit in words; empty without one."""
        return "" if self.limit is None else self._said(self.limit)

    def _said(self, num: int) -> str:
        return wording.size(num) if self.is_bytes else wording.count(num)


async def use_of(
    work: AsyncSession, resources: Resources, project: Project, *, only_limited: bool = False
) -> list[Use]:
    """What of a project counts against limits; what has none is not counted if so asked."""
    tokens = project.batch_enqueued_token_limit
    if tokens is None:
        tokens = resources.settings.batch_enqueued_tokens
    found = await _rates(resources, project)
    for name, count, limit in (
        ("Live batches", quota.live_batches, project.live_batches),
        ("Batches of the last hour", quota.batches_of_hour, project.batches_per_hour),
        ("Stored bytes", quota.stored_bytes, project.stored_bytes),
    ):
        if limit is not None or not only_limited:
            num = await count(work, project.id)
            found.append(Use(name, num, limit, is_bytes=count is quota.stored_bytes))
    if tokens is not None or not only_limited:
        for model in await quota.live_models(work, project.id):
            num = await quota.enqueued_tokens(work, project.id, model)
            found.append(Use(f"Prompt tokens waiting, {model}", num, tokens))
    return found


async def limited_use(
    work: AsyncSession, resources: Resources, projects: Sequence[Project]
) -> list[tuple[Project, list[Use]]]:
    """Of the first projects those with limits of their own, with what counts against them."""
    shown = [one for one in projects if one.archived_at is None][:MAX_LIMITED]
    found = [(one, await use_of(work, resources, one, only_limited=True)) for one in shown]
    return [(project, uses) for project, uses in found if uses]


async def _rates(resources: Resources, project: Project) -> list[Use]:
    """What is limited by the minute and at once: known only where it is limited."""
    rates = Rates(project.requests_per_minute, project.tokens_per_minute)
    used = await resources.limiter.used(project.id, rates)
    found = [Use(f"{kind.capitalize()} a minute", *pair) for kind, pair in used.items()]
    if project.concurrent_requests is not None:
        num = await resources.at_once.in_flight(project.id)
        found.append(Use("Requests at once", num, project.concurrent_requests))
    return found
