"""`coserve usage`: tokens per day, project, key, model and class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands.host import OrgOption, act
from coserve.commands.listing import AsJson, Filters, Limit, show_list, text
from coserve.commands.terminal import refuse

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from store.repositories.usage import UsageLine

HEADINGS = {"project": "project_id", "key": "key_id", "model": "model", "class": "request_class"}
FIGURES = {
    "requests": "num_requests",
    "input": "prompt_tokens",
    "cached": "cached_tokens",
    "output": "completion_tokens",
}


def usage(
    org: OrgOption = "org_default",
    days: Annotated[int, typer.Option(help="How many, with today (UTC).", min=1, max=3660)] = 7,
    by: Annotated[
        str, typer.Option(help="Some of project, key, model and class, comma separated.")
    ] = "project,key,model,class",
    json: AsJson = False,
    limit: Limit = 10_000,
    filters: Filters = None,
) -> None:
    """Show what an organisation used."""
    from service.clock import SystemClock
    from store.repositories import key as keys
    from store.repositories import project as projects
    from store.repositories import usage as usages

    words = [word.strip() for word in by.split(",") if word.strip()]
    unknown = [word for word in words if word not in HEADINGS]
    if unknown:
        refuse(f"Cannot group by {unknown[0]!r}: {', '.join(HEADINGS)}.", status=2)
    until = SystemClock().now().date() + timedelta(days=1)

    async def work(session: AsyncSession) -> tuple[list[UsageLine], dict[str, str]]:
        lines = await usages.report(
            session,
            org,
            since=until - timedelta(days=days),
            until=until,
            by=[HEADINGS[word] for word in words],
        )
        found = await keys.page(session, org, include_revoked=True)
        names = {key.id: f"{key.name} ({key.id})" for key, _ in found}
        for project in await projects.page(session, org, include_archived=True):
            names[project.id] = f"{project.name} ({project.id})"
        return lines, names

    lines, names = act(work)
    records = [
        {
            "day": str(line.day),
            **{HEADINGS[word]: line.group[HEADINGS[word]] for word in words},
            "num_requests": line.count.num_requests,
            "prompt_tokens": line.count.prompt_tokens,
            "cached_tokens": line.count.cached_tokens,
            "completion_tokens": line.count.completion_tokens,
        }
        for line in lines
    ]
    columns: dict[str, Callable[[Any], str]] = {"day": text("day")}
    for word in words:
        columns[word] = _named(HEADINGS[word], names)
    for heading, key in FIGURES.items():
        columns[heading] = _number(key)
    show_list(columns, records, json=json, limit=limit, filters=filters)


def _named(key: str, names: Mapping[str, str]) -> Callable[[Any], str]:
    return lambda record: names.get(record[key], record[key])


def _number(key: str) -> Callable[[Any], str]:
    return lambda record: f"{record[key]:,}"
