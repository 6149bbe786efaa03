"""The books of an organisation: its audit log, and what it used."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from batch.schemas import may_be_id
from gateway.dashboard.access import AdminDep, AuditorDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.tenants.actor import Action
from store.repositories import audit, usage
from store.repositories import key as keys
from store.repositories import project as projects
from store.repositories.audit import AuditFilter
from store.repositories.usage import UsageCount

router = APIRouter()

PAGE_ENTRIES = 50
LOGINS = (str(Action.LOGIN),)
SPANS = {1: "Today", 7: "7 days", 30: "30 days"}


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
        now = await keys.instant_after(work, 0)
    shown = found[:PAGE_ENTRIES]
    return page(
        request,
        resources,
        admin.session,
        "audit.html",
        admin=admin,
        entries=shown,
        after=after,
        action=action,
        logins=logins,
        next_after=shown[-1][0].id if len(found) > PAGE_ENTRIES else "",
        now=now,
    )


@router.get("/usage")
async def usage_page(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    days: Annotated[int, Query()] = 7,
) -> Response:
    """Tokens per project, key, model and class over the last days (UTC), the most first."""
    span = days if days in SPANS else 7
    until = resources.clock.now().date() + timedelta(days=1)
    async with resources.database.unit_of_work() as work:
        lines = await usage.report(
            work, admin.organization_id, since=until - timedelta(days=span), until=until
        )
        every_key = await keys.page(work, admin.organization_id, include_revoked=True)
        every_project = await projects.page(work, admin.organization_id, include_archived=True)
    sums: dict[tuple[str, ...], UsageCount] = {}
    for line in lines:
        group = tuple(line.group[column] for column in usage.GROUPS)
        sums[group] = sums.get(group, UsageCount()) + line.count
    by_class: dict[str, UsageCount] = {}
    for (*_, word), one in sums.items():
        by_class[word] = by_class.get(word, UsageCount()) + one
    return page(
        request,
        resources,
        admin.session,
        "usage.html",
        admin=admin,
        rows=sorted(sums.items(), key=lambda row: -_tokens(row[1])),
        by_class=by_class,
        key_names={key.id: key.name for key, _ in every_key},
        project_names={project.id: project.name for project in every_project},
        spans=SPANS,
        span=span,
    )


def _tokens(count: UsageCount) -> int:
    return count.prompt_tokens + count.completion_tokens
