"""`coserve audit`: who did what to projects and keys."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from coserve.commands.host import OrgOption, act
from coserve.commands.table import show_table


def audit(
    org: OrgOption = "org_default",
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=10_000)] = 50,
    action: Annotated[
        list[str] | None, typer.Option(help="Only these, as `api_key.created`.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show an organisation's audit log, newest first."""
    from gateway.tenants.shapes import audit_object
    from store.repositories import audit as log
    from store.repositories.audit import AuditFilter

    only = AuditFilter(action or ())
    found = act(lambda session: log.page(session, org, only=only, limit=limit))
    if json:
        for entry, project_name in found:
            typer.echo(orjson.dumps(audit_object(entry, project_name)).decode())
        return
    rows = [
        (
            f"{entry.created_at:%Y-%m-%d %H:%M:%S}",
            entry.action,
            entry.target_id,
            project_name or "-",
            entry.actor_name,
            entry.source,
            entry.address or "-",
            entry.request_id or "-",
        )
        for entry, project_name in found
    ]
    columns = ("when (UTC)", "what", "target", "project", "who", "through", "from", "request")
    show_table(columns, rows)
