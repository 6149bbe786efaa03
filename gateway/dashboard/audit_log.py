"""The audit log of an organisation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.batch_shapes import may_be_id
from gateway.dashboard.access import AuditorDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.tenants.actor import Action
from store.repositories import audit, overview, statements
from store.repositories.audit import AuditFilter

router = APIRouter()

PAGE_ENTRIES = 50
LOGINS = (str(Action.LOGIN),)


@router.get("/audit")
async def audit_page(
    request: Request,
    resources: ResourcesDep,
    admin: AuditorDep,
    after: Annotated[str, Query(max_length=64)] = "",
    action: Annotated[str, Query(max_length=64)] = "",
    logins: bool = False,
) -> Response:
    """Who did what, newest first; logins only if they are asked for."""
    only = AuditFilter((action,)) if action else AuditFilter(without=() if logins else LOGINS)
    async with resources.database.unit_of_work() as work:
        border = None
        if may_be_id(after):
            border = await audit.get(work, admin.organization_id, after)
        found = await audit.page(
            work, admin.organization_id, only=only, after=border, limit=PAGE_ENTRIES + 1
        )
        now = await statements.now(work)
        shown = found[:PAGE_ENTRIES]
        targets = {entry.target_id for entry, _ in shown if entry.target_id.startswith("batch_")}
        names = await overview.input_names(work, admin.organization_id, sorted(targets))
    return page(
        request,
        resources,
        admin.session,
        "audit.html",
        admin=admin,
        entries=shown,
        names=names,
        after=after,
        action=action,
        logins=logins,
        next_after=shown[-1][0].id if len(found) > PAGE_ENTRIES else "",
        now=now,
    )
