"""`coserve user`: operators, who log in to the dashboard. Each is a key with a role."""

from __future__ import annotations

from typing import Annotated

import typer

from coserve.commands import key
from coserve.commands.host import LifetimeOption, OrgOption, ProjectOption, act
from coserve.commands.listing import AsJson, Columns, Filters, Limit, instant, show_list, text

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose: it stands in the audit log.")],
    role: Annotated[str, typer.Option(help="viewer, operator or admin.")],
    project: ProjectOption = "proj_default",
    expires_in_days: LifetimeOption = None,
) -> None:
    """Make an operator's key and print it, this once. It opens the dashboard, not the API."""
    from gateway.tenants.keys import NewKey

    typer.echo(key.make(project, NewKey(name, (), role, key.seconds_of(expires_in_days))))


@app.command("list")
def list_(
    org: OrgOption = "org_default",
    json: AsJson = False,
    limit: Limit = 1000,
    filters: Filters = None,
) -> None:
    """Show an organisation's operators, those that ended too."""
    from store.repositories import key as keys

    found = act(lambda session: keys.page(session, org, operators=True, include_revoked=True))
    columns: Columns = {
        "id": text("id"),
        "name": text("name"),
        "role": text("role"),
        "last used": instant("last_used_at"),
        "state": key.state_in_words,
    }
    records = (key.record_of(one) for one, _ in found)
    show_list(columns, records, json=json, limit=limit, filters=filters)


@app.command()
def remove(
    user_id: Annotated[str, typer.Argument(help="As `coserve user list` shows it.")],
) -> None:
    """End an operator's key and the sessions made with it."""
    key.revoke(user_id)
