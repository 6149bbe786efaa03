"""`coserve usage`: tokens per day, project, key, model and class."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from coserve.commands.host import OrgOption, act
from coserve.commands.table import show_table

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from store.repositories.usage import UsageLine

HEADINGS = {"project": "project_id", "key": "key_id", "model": "model", "class": "request_class"}


def usage(
    org: OrgOption = "org_default",
    days: Annotated[int, typer.Option(help="How many, with today (UTC).", min=1, max=3660)] = 7,
    by: Annotated[
        str, typer.Option(help="Some of project, key, model and class, comma separated.")
    ] = "project,key,model,class",
) -> None:
    """Show what an organisation used."""
    from batch.clock import SystemClock
    from store.repositories import key as keys
    from store.repositories import project as projects
    from store.repositories import usage as usages

    words = [word.strip() for word in by.split(",") if word.strip()]
    unknown = [word for word in words if word not in HEADINGS]
    if unknown:
        typer.echo(f"Cannot group by {unknown[0]!r}: {', '.join(HEADINGS)}.", err=True)
        raise typer.Exit(2)
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
    rows = [
        (
            str(line.day),
            *(names.get(line.group[HEADINGS[word]], line.group[HEADINGS[word]]) for word in words),
            f"{line.count.num_requests:,}",
            f"{line.count.prompt_tokens:,}",
            f"{line.count.cached_tokens:,}",
            f"{line.count.completion_tokens:,}",
        )
        for line in lines
    ]
    show_table(("day", *words, "requests", "input", "cached", "output"), rows)
