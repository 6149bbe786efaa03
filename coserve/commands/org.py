"""`coserve org`: organisations. Only the host can make one."""

from __future__ import annotations

from typing import Annotated

import typer

from coserve.commands.host import act, host_user, when
from coserve.commands.table import show_table

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(name: Annotated[str, typer.Argument(help="For people.")]) -> None:
    """Make an organisation; its first project and operator are made next."""
    from gateway.tenants.projects import create_organization

    made = act(lambda session: create_organization(session, host_user(), name))
    typer.echo(made.id)


@app.command("list")
def list_() -> None:
    """Show every organisation."""
    from store.repositories import organization as organizations

    rows = [(one.id, one.name, when(one.created_at)) for one in act(organizations.list_all)]
    show_table(("id", "name", "made"), rows)
