"""`coserve org`: organisations. Only the host can make one."""

from __future__ import annotations

from typing import Annotated

import typer

from coserve.commands.host import act, host_user
from coserve.commands.listing import AsJson, Columns, Filters, Limit, instant, show_list, text

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(name: Annotated[str, typer.Argument(help="For people.")]) -> None:
    """Make an organisation; its first project and operator are made next."""
    from gateway.tenants.projects import create_organization

    made = act(lambda session: create_organization(session, host_user(), name))
    typer.echo(made.id)


@app.command("list")
def list_(json: AsJson = False, limit: Limit = 1000, filters: Filters = None) -> None:
    """Show every organisation."""
    from api.batch_shapes import unix_s
    from store.repositories import organization as organizations

    records = [
        {"id": one.id, "name": one.name, "created_at": unix_s(one.created_at)}
        for one in act(organizations.list_all)
    ]
    columns: Columns = {"id": text("id"), "name": text("name"), "made": instant("created_at")}
    show_list(columns, records, json=json, limit=limit, filters=filters)
