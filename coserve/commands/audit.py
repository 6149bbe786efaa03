"""`coserve audit`: who did what to projects and keys."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coserve.commands.host import OrgOption, act
from coserve.commands.listing import AsJson, Columns, Filters, Limit, show_list


def audit(
    org: OrgOption = "org_default",
    limit: Limit = 50,
    action: Annotated[
        list[str] | None, typer.Option(help="Only these, as `api_key.created`.")
    ] = None,
    json: AsJson = False,
    filters: Filters = None,
) -> None:
    """Show an organisation's audit log, newest first."""
    from gateway.tenants.shapes import audit_object
    from store.repositories import audit as log
    from store.repositories.audit import AuditFilter

    only = AuditFilter(action or ())
    read = _MOST if filters else limit
    found = act(lambda session: log.page(session, org, only=only, limit=read))
    entries = (audit_object(entry, project_name) for entry, project_name in found)
    show_list(_COLUMNS, entries, json=json, limit=limit, filters=filters)


_MOST = 100_000
"""How far back a filter looks."""


def _time(entry: Any) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(entry['effective_at'], UTC):%Y-%m-%d %H:%M:%S}"


_COLUMNS: Columns = {
    "when (UTC)": _time,
    "what": lambda entry: entry["type"],
    "target": lambda entry: entry[entry["type"]]["id"],
    "project": lambda entry: (entry["project"] or {}).get("name") or "-",
    "who": lambda entry: entry["coserve"]["actor_name"],
    "through": lambda entry: entry["coserve"]["source"],
    "from": lambda entry: entry["coserve"]["address"] or "-",
    "request": lambda entry: entry["coserve"]["request_id"] or "-",
}
