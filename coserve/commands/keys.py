"""`coserve keys`: API keys. The plain text is shown once; only its hash is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from coserve.commands.table import show_table
from coserve.commands.up import read_settings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

app = typer.Typer(no_args_is_help=True)
Result = TypeVar("Result")


def database_url() -> str:
    """DATABASE_URL, else the embedded server of the stack that runs on this state directory."""
    from coserve.local import postgres

    settings = read_settings()
    if settings.database_url:
        return settings.database_url
    found = postgres.running_url(settings.home_path)
    if found is None:
        typer.echo("No database: start coserve first, or set DATABASE_URL.", err=True)
        raise typer.Exit(1)
    return found


def _in_transaction(work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
    from sqlalchemy.exc import SQLAlchemyError

    from store.session import Database

    async def run() -> Result:
        database = Database(database_url(), pool_size=1)
        try:
            async with database.unit_of_work() as session:
                return await work(session)
        finally:
            await database.dispose()

    try:
        return asyncio.run(run())
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        typer.echo(f"The database refused: {reason}", err=True)
        raise typer.Exit(1) from None


@app.command()
def create(
    name: Annotated[str, typer.Option(help="For people.")] = "default",
    project: Annotated[str, typer.Option(help="Whose files, batches and usage.")] = "proj_default",
    scope: Annotated[
        list[str] | None, typer.Option(help="`admin` opens the dashboard; the API needs none.")
    ] = None,
) -> None:
    """Make a key and print it, this once."""
    from store.repositories import key as keys

    scopes = tuple(scope or ())
    unknown = sorted(set(scopes) - {"admin"})
    if unknown:
        typer.echo(f"There is no scope {unknown[0]!r}; there is `admin`.", err=True)
        raise typer.Exit(2)
    _, plaintext = _in_transaction(lambda session: keys.create(session, project, name, scopes))
    typer.echo(plaintext)


def _day(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%Y-%m-%d %H:%M}"


@app.command("list")
def list_() -> None:
    """Show every key, revoked ones too."""
    from store.repositories import key as keys

    rows = [
        (
            key.id,
            key.name,
            f"{key.prefix}…",
            ",".join(key.scopes) or "-",
            key.project_id,
            _day(key.created_at),
            _day(key.last_used_at),
            "usable" if key.revoked_at is None else f"revoked {_day(key.revoked_at)}",
        )
        for key in _in_transaction(keys.list_all)
    ]
    show_table(("id", "name", "begins", "scopes", "project", "made", "last used", "state"), rows)


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="As `coserve keys list` shows it.")]) -> None:
    """Make a key unusable, for good."""
    from store.repositories import key as keys

    if not _in_transaction(lambda session: keys.revoke(session, key_id)):
        typer.echo(f"There is no usable key {key_id}.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{key_id} is revoked.")
