"""`coserve key`: API keys. The plain text is shown once; only its hash is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands.host import (
    LifetimeOption,
    LimitOption,
    ProjectOption,
    TierOption,
    WaitOption,
    act,
    actor_of_key,
    actor_of_project,
    limits_of,
)
from coserve.commands.listing import (
    AsJson,
    Columns,
    Filters,
    Limit,
    Record,
    instant,
    show_list,
    text,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from gateway.tenants.keys import NewKey
    from store.models import ApiKey

app = typer.Typer(no_args_is_help=True)
KeyArgument = Annotated[str, typer.Argument(help="As `coserve key list` shows it.")]
DAY_S = 86_400


@app.command()
def create(  # noqa: PLR0913
    name: Annotated[str, typer.Argument(help="For people.")],
    project: ProjectOption = "proj_default",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="chat, files, batches, webhooks or read; again for more. Else all."),
    ] = None,
    expires_in_days: LifetimeOption = None,
    requests_per_minute: LimitOption = None,
    tokens_per_minute: LimitOption = None,
    service_tier: TierOption = None,
    flex_wait_seconds: WaitOption = None,
    may_raise_tier: Annotated[
        bool, typer.Option(help="Its requests may name a better tier than its default.")
    ] = False,
) -> None:
    """Make a key of a project and print it, this once."""
    from gateway.tenants.keys import NewKey
    from store.models.key import WRITE_SCOPES

    limits = limits_of(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        flex_wait_seconds=flex_wait_seconds,
        service_tier=service_tier,
    )
    limits["may_raise_tier"] = may_raise_tier
    wanted = NewKey(name, scope or WRITE_SCOPES, None, seconds_of(expires_in_days), limits)
    typer.echo(make(project, wanted))


def make(project_id: str, wanted: NewKey) -> str:
    """A new key's plain text."""
    from gateway.tenants.keys import create_key

    async def work(session: AsyncSession) -> tuple[ApiKey, str]:
        actor = await actor_of_project(session, project_id)
        return await create_key(session, actor, project_id, wanted)

    return act(work)[1]


def seconds_of(days: int | None) -> int | None:
    """A lifetime of so many days; None, like `days`, for a key that does not expire."""
    return None if days is None else days * DAY_S


@app.command("list")
def list_(
    project: Annotated[str | None, typer.Option(help="Only those of this project.")] = None,
    json: AsJson = False,
    limit: Limit = 10_000,
    filters: Filters = None,
) -> None:
    """Show every key of every organisation, ended ones too."""
    from store.repositories import key as keys

    records = [record_of(key) for key, _ in act(keys.list_all) if project in (None, key.project_id)]
    columns: Columns = {
        "id": text("id"),
        "name": text("name"),
        "begins": text("redacted_value"),
        "scopes": lambda key: ",".join(key["scopes"]) or "-",
        "role": text("role"),
        "tier": text("service_tier"),
        "project": text("project_id"),
        "made": instant("created_at"),
        "last used": instant("last_used_at"),
        "state": state_in_words,
    }
    show_list(columns, records, json=json, limit=limit, filters=filters)


def record_of(key: ApiKey) -> dict[str, Any]:
    """A key as it is listed; the key itself is not known to anybody."""
    from api.batch_shapes import unix_s

    return {
        "id": key.id,
        "name": key.name,
        "redacted_value": f"{key.prefix}…",
        "scopes": key.scopes,
        "role": key.role,
        "project_id": key.project_id,
        "created_at": unix_s(key.created_at),
        "last_used_at": unix_s(key.last_used_at),
        "expires_at": unix_s(key.expires_at),
        "revoked_at": unix_s(key.revoked_at),
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "service_tier": key.service_tier,
        "flex_wait_seconds": key.flex_wait_seconds,
        "may_raise_tier": key.may_raise_tier,
    }


def state_in_words(key: Record) -> str:
    """Whether a key opens anything."""
    if key["revoked_at"] is not None:
        return f"revoked {instant('revoked_at')(key)}"
    return "usable" if key["expires_at"] is None else f"until {instant('expires_at')(key)}"


@app.command("set")
def set_(
    key_id: KeyArgument,
    requests_per_minute: LimitOption = None,
    tokens_per_minute: LimitOption = None,
    service_tier: TierOption = None,
    flex_wait_seconds: WaitOption = None,
    may_raise_tier: Annotated[
        bool | None, typer.Option(help="Its requests may name a better tier than its default.")
    ] = None,
) -> None:
    """Change a key's limits or its tier; they hold within 5 s."""
    from gateway.tenants.keys import update_key

    limits = limits_of(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        flex_wait_seconds=flex_wait_seconds,
        service_tier=service_tier,
    )
    if may_raise_tier is not None:
        limits["may_raise_tier"] = may_raise_tier

    async def work(session: AsyncSession) -> ApiKey:
        actor = await actor_of_key(session, key_id)
        return (await update_key(session, actor, key_id, limits=limits))[0]

    typer.echo(f"{act(work).id} is changed.")


@app.command()
def rotate(
    key_id: KeyArgument,
    grace_hours: Annotated[
        int, typer.Option(help="How long the old key goes on; 0 ends it.", min=0, max=720)
    ] = 24,
) -> None:
    """Make a key in the place of another and print it, this once."""
    from gateway.tenants.keys import rotate_key

    async def work(session: AsyncSession) -> tuple[ApiKey, str]:
        actor = await actor_of_key(session, key_id)
        return await rotate_key(session, actor, key_id, grace_s=grace_hours * 3600)

    typer.echo(act(work)[1])


@app.command()
def revoke(key_id: KeyArgument) -> None:
    """End a key for good: within 5 s everywhere, open streams included."""
    from gateway.tenants.keys import revoke_key

    async def work(session: AsyncSession) -> ApiKey:
        return await revoke_key(session, await actor_of_key(session, key_id), key_id)

    typer.echo(f"{act(work).id} is revoked.")
