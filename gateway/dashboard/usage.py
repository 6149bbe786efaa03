"""An organisation's usage by day, project, key, model and class, with its limits; also as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from gateway.dashboard import harvested
from gateway.dashboard.access import Admin, AdminDep, ResourcesDep
from gateway.dashboard.drawing import bars, nice_top
from gateway.dashboard.pages import page
from gateway.dashboard.resources import Resources
from gateway.dashboard.use import limited_use
from store.models import Project
from store.repositories import key as keys
from store.repositories import project as projects
from store.repositories import usage
from store.repositories.usage import UsageCount, UsageKey, UsageLine

router = APIRouter()

SPANS = {1: "Today", 7: "7 days", 30: "30 days", 90: "90 days"}
CLASSES = ("online", "flex", "offline")
SHARED_BY = {
    "project_id": "By project",
    "key_id": "By key",
    "model": "By model",
    "request_class": "By class",
}
MAX_SHARES = 8
CSV_COLUMNS = (
    "day",
    "project_id",
    "project",
    "key_id",
    "key",
    "model",
    "class",
    "requests",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class _Used:
    """What was used in some days, and the names that go with the ids.

    Attributes:
        sums: Of all days.
        by_class: A line for each day and class.
    """

    first: date
    num_days: int
    sums: Mapping[UsageKey, UsageCount]
    by_class: Sequence[UsageLine]
    key_names: Mapping[str, str]
    project_names: Mapping[str, str]
    projects: Sequence[Project]


@router.get("/usage")
async def usage_page(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    days: Annotated[int, Query()] = 7,
) -> Response:
    """Tokens per project, key, model and class over the last days (UTC), the most first."""
    used = await _read(resources, admin, days)
    by_class: dict[str, UsageCount] = {}
    for group, count in used.sums.items():
        by_class[group.request_class] = by_class.get(group.request_class, UsageCount()) + count
    total = sum(map(_tokens, used.sums.values()))
    first, until = _days(resources, days)
    async with resources.database.snapshot() as work:
        limited = await limited_use(work, resources, used.projects)
    async with resources.readings.snapshot() as work:
        day = await harvested.of_day(work, resources)
        of_projects = await harvested.by_project(
            work, admin.organization_id, day, since=first, until=until
        )
    rows = [
        (group, count, 100 * _tokens(count) / total if total else 0.0)
        for group, count in sorted(used.sums.items(), key=lambda item: -_tokens(item[1]))
    ]
    return page(
        request,
        resources,
        admin.session,
        "usage.html",
        admin=admin,
        rows=rows,
        by_class=by_class,
        shares=_shares(used),
        limited=limited,
        harvest=day.part(sum(one.tokens for one in of_projects.values())),
        harvests=of_projects,
        picture=_picture(used),
        key_names=used.key_names,
        project_names=used.project_names,
        spans=SPANS,
        span=used.num_days,
    )


@router.get("/usage.csv")
async def usage_csv(
    resources: ResourcesDep, admin: AdminDep, days: Annotated[int, Query()] = 7
) -> Response:
    """The same lines, one per day, project, key, model and class."""
    first, until = _days(resources, days)
    async with resources.readings.snapshot() as work:
        lines = await usage.report(work, admin.organization_id, since=first, until=until)
        key_names, project_names, _ = await _names(work, admin)
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for line in sorted(lines, key=lambda one: (one.day, *one.group.values())):
        project_id, key_id, model, request_class = (line.group[name] for name in usage.GROUPS)
        count = line.count
        writer.writerow(
            [
                line.day.isoformat(),
                project_id,
                _cell(project_names.get(project_id, "")),
                key_id,
                _cell(key_names.get(key_id, "")),
                _cell(model),
                request_class,
                count.num_requests,
                count.prompt_tokens,
                count.cached_tokens,
                count.completion_tokens,
            ]
        )
    name = f"usage-{first.isoformat()}-{(until - first).days}d.csv"
    return Response(
        out.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _days(resources: Resources, days: int) -> tuple[date, date]:
    """The first day, and the day after the last."""
    until = resources.clock.now().date() + timedelta(days=1)
    return until - timedelta(days=days if days in SPANS else 7), until


async def _names(
    work: AsyncSession, admin: Admin
) -> tuple[dict[str, str], dict[str, str], Sequence[Project]]:
    """Names of keys and of projects by id, those included that are no more; the projects."""
    every_key = await keys.page(work, admin.organization_id, include_revoked=True)
    every_project = await projects.page(work, admin.organization_id, include_archived=True)
    return (
        {key.id: key.name for key, _ in every_key},
        {project.id: project.name for project in every_project},
        every_project,
    )


async def _read(resources: Resources, admin: Admin, days: int) -> _Used:
    first, until = _days(resources, days)
    of = admin.organization_id
    async with resources.readings.snapshot() as work:
        sums = await usage.totals(work, of, since=first, until=until)
        by_class = await usage.report(work, of, since=first, until=until, by=("request_class",))
        names = await _names(work, admin)
    return _Used(first, (until - first).days, sums, by_class, *names)


def _shares(used: _Used) -> list[tuple[str, list[tuple[str, int, float]]]]:
    """For each kind of owner the largest with their tokens and percent of all, and the rest."""
    names: dict[str, Mapping[str, str]] = {
        "project_id": used.project_names,
        "key_id": used.key_names,
    }
    total = sum(map(_tokens, used.sums.values()))
    found = []
    for column, title in SHARED_BY.items():
        sums: dict[str, int] = {}
        for group, count in used.sums.items():
            owner = getattr(group, column)
            name = names.get(column, {}).get(owner, owner) or "unknown"
            sums[name] = sums.get(name, 0) + _tokens(count)
        ordered = sorted(sums.items(), key=lambda item: -item[1])
        shown = ordered[:MAX_SHARES]
        if rest := sum(num for _, num in ordered[MAX_SHARES:]):
            shown.append((f"{len(ordered) - MAX_SHARES} others", rest))
        found.append((title, [(name, num, 100 * num / max(1, total)) for name, num in shown]))
    return found


def _picture(used: _Used) -> dict[str, object]:
    """Tokens a day, the classes on top of each other, as paths of a box one wide by day."""
    heights = {name: [0.0] * used.num_days for name in CLASSES}
    for line in used.by_class:
        number = (line.day - used.first).days
        heights[line.group["request_class"]][number] += _tokens(line.count)
    sums = [sum(one) for one in zip(*heights.values(), strict=True)]
    top = nice_top(max(sums, default=0.0))
    bases = [0.0] * used.num_days
    paths = {}
    for name, values in heights.items():
        paths[name] = bars(values, bases, top=top)
        bases = [base + value for base, value in zip(bases, values, strict=True)]
    last = used.first + timedelta(days=used.num_days - 1)
    return {"paths": paths, "top": top, "days": used.num_days, "first": used.first, "last": last}


def _cell(text: str) -> str:
    """A name that a spreadsheet would take for a formula is shown as what it is."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _tokens(count: UsageCount) -> int:
    return count.prompt_tokens + count.completion_tokens
