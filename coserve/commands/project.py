"""`coserve project`: projects, which own files, batches, keys and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coserve.commands.host import (
    LimitOption,
    OrgOption,
    act,
    actor_of_org,
    actor_of_project,
    limits_of,
    number,
    when,
)
from coserve.commands.table import show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncSession

    from store.models import Project

app = typer.Typer(no_args_is_help=True)
ProjectArgument = Annotated[str, typer.Argument(help="As `coserve project list` shows it.")]


@app.command()
def create(  # noqa: PLR0913
    name: Annotated[str, typer.Argument(help="For people.")],
    org: OrgOption = "org_default",
    requests_per_minute: LimitOption = None,
    tokens_per_minute: LimitOption = None,
    batch_enqueued_token_limit: LimitOption = None,
    concurrent_requests: LimitOption = None,
    live_batches: LimitOption = None,
    batches_per_hour: LimitOption = None,
    stored_bytes: LimitOption = None,
) -> None:
    """Make a project and print its id."""
    from gateway.tenants.projects import create_project

    limits = limits_of(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        batch_enqueued_token_limit=batch_enqueued_token_limit,
        concurrent_requests=concurrent_requests,
        live_batches=live_batches,
        batches_per_hour=batches_per_hour,
        stored_bytes=stored_bytes,
    )

    async def work(session: AsyncSession) -> Project:
        return await create_project(session, await actor_of_org(session, org), name, limits)

    typer.echo(act(work).id)


@app.command("list")
def list_(org: OrgOption = "org_default") -> None:
    """Show an organisation's projects and their limits, archived ones too."""
    from store.repositories import project as projects

    async def work(session: AsyncSession) -> Sequence[Project]:
        await actor_of_org(session, org)
        return await projects.page(session, org, include_archived=True)

    rows = [
        (
            one.id,
            one.name,
            number(one.requests_per_minute),
            number(one.tokens_per_minute),
            number(one.batch_enqueued_token_limit),
            when(one.created_at),
            "active" if one.archived_at is None else f"archived {when(one.archived_at)}",
        )
        for one in act(work)
    ]
    columns = ("id", "name", "requests/min", "tokens/min", "batch tokens", "made", "state")
    show_table(columns, rows)


@app.command("set")
def set_(  # noqa: PLR0913
    project_id: ProjectArgument,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    requests_per_minute: LimitOption = None,
    tokens_per_minute: LimitOption = None,
    batch_enqueued_token_limit: LimitOption = None,
    concurrent_requests: LimitOption = None,
    live_batches: LimitOption = None,
    batches_per_hour: LimitOption = None,
    stored_bytes: LimitOption = None,
) -> None:
    """Rename a project or change its limits; they hold within 5 s."""
    from gateway.tenants.projects import update_project

    limits = limits_of(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        batch_enqueued_token_limit=batch_enqueued_token_limit,
        concurrent_requests=concurrent_requests,
        live_batches=live_batches,
        batches_per_hour=batches_per_hour,
        stored_bytes=stored_bytes,
    )

    async def work(session: AsyncSession) -> Project:
        actor = await actor_of_project(session, project_id)
        return await update_project(session, actor, project_id, name=name, limits=limits)

    typer.echo(f"{act(work).id} is changed.")


@app.command()
def archive(project_id: ProjectArgument) -> None:
    """Close a project for good: its keys open nothing any more; what it owns stays."""
    from gateway.tenants.projects import archive_project

    async def work(session: AsyncSession) -> Project:
        actor = await actor_of_project(session, project_id)
        return await archive_project(session, actor, project_id)

    typer.echo(f"{act(work).id} is archived.")
