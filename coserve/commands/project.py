"""`coserve project`: projects, which own files, batches, keys and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coserve.commands.host import (
    LimitOption,
    ModelsOption,
    OrgOption,
    TierOption,
    WaitOption,
    act,
    actor_of_org,
    actor_of_project,
    limits_of,
    number,
)
from coserve.commands.listing import AsJson, Columns, Filters, Limit, instant, show_list, text

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
    models: ModelsOption = None,
    service_tier: TierOption = None,
    flex_wait_seconds: WaitOption = None,
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
        flex_wait_seconds=flex_wait_seconds,
        models=models,
        service_tier=service_tier,
    )

    async def work(session: AsyncSession) -> Project:
        return await create_project(session, await actor_of_org(session, org), name, limits)

    typer.echo(act(work).id)


@app.command("list")
def list_(
    org: OrgOption = "org_default",
    json: AsJson = False,
    limit: Limit = 1000,
    filters: Filters = None,
) -> None:
    """Show an organisation's projects and their limits, archived ones too."""
    from gateway.tenants.shapes import ProjectObject
    from store.repositories import project as projects

    async def work(session: AsyncSession) -> Sequence[Project]:
        await actor_of_org(session, org)
        return await projects.page(session, org, include_archived=True)

    records = [ProjectObject.of(one).model_dump() for one in act(work)]
    columns: Columns = {
        "id": text("id"),
        "name": text("name"),
        "requests/min": lambda one: number(one["coserve"]["requests_per_minute"]),
        "tokens/min": lambda one: number(one["coserve"]["tokens_per_minute"]),
        "batch tokens": lambda one: number(one["coserve"]["batch_enqueued_token_limit"]),
        "made": instant("created_at"),
        "state": lambda one: (
            f"archived {instant('archived_at')(one)}" if one["archived_at"] else "active"
        ),
    }
    show_list(columns, records, json=json, limit=limit, filters=filters)


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
    models: ModelsOption = None,
    service_tier: TierOption = None,
    flex_wait_seconds: WaitOption = None,
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
        flex_wait_seconds=flex_wait_seconds,
        models=models,
        service_tier=service_tier,
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
