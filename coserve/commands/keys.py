"""`coserve keys`: API keys. The plain text is shown once; only its hash is kept."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from coserve.commands.table import show_table
from coserve.commands.transaction import in_transaction

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Option(help="For people.")] = "default",
    project: Annotated[str, typer.Option(help="Whose files, batches and usage.")] = "proj_default",
    role: Annotated[
        str | None, typer.Option(help="Opens the dashboard: viewer, operator or admin.")
    ] = None,
) -> None:
    """Make a key and print it, this once."""
    from store.models.key import KEY_ROLES
    from store.repositories import key as keys

    if role is not None and role not in KEY_ROLES:
        typer.echo(f"There is no role {role!r}; there are {', '.join(KEY_ROLES)}.", err=True)
        raise typer.Exit(2)
    _, plaintext = in_transaction(lambda session: keys.create(session, project, name, role=role))
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
            key.role or "-",
            key.project_id,
            _day(key.created_at),
            _day(key.last_used_at),
            "usable" if key.revoked_at is None else f"revoked {_day(key.revoked_at)}",
        )
        for key in in_transaction(keys.list_all)
    ]
    show_table(("id", "name", "begins", "role", "project", "made", "last used", "state"), rows)


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="As `coserve keys list` shows it.")]) -> None:
    """Make a key unusable, for good."""
    from store.repositories import key as keys

    if not in_transaction(lambda session: keys.revoke(session, key_id)):
        typer.echo(f"There is no usable key {key_id}.", err=True)
        raise typer.Exit(1)
    typer.echo(f"{key_id} is revoked.")
