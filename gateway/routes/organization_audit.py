"""`/organization/audit_logs`: who did what to projects and keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import may_be_id
from api.errors import NotFound
from gateway.dependencies import AuditorDep, ReadingsDep
from gateway.routes.organization_projects import PageLimit
from gateway.tenants.shapes import audit_object
from store.models import AuditEntry
from store.repositories import audit
from store.repositories.audit import AuditFilter

router = APIRouter(tags=["organization"])

MAX_UNIX_S = 253_402_300_799
"""The last second of the year 9999."""


@router.get("/organization/audit_logs")
async def list_audit_logs(  # noqa: PLR0913
    principal: AuditorDep,
    readings: ReadingsDep,
    after: str | None = None,
    before: str | None = None,
    limit: PageLimit = 20,
    event_types: Annotated[list[str], Query(alias="event_types[]", max_length=100)] = [],  # noqa: B006
    project_ids: Annotated[list[str], Query(alias="project_ids[]", max_length=100)] = [],  # noqa: B006
    actor_ids: Annotated[list[str], Query(alias="actor_ids[]", max_length=100)] = [],  # noqa: B006
    since: Annotated[int | None, Query(alias="effective_at[gte]", ge=0, le=MAX_UNIX_S)] = None,
    until: Annotated[int | None, Query(alias="effective_at[lt]", ge=0, le=MAX_UNIX_S)] = None,
) -> dict[str, Any]:
    """A page of the organisation's audit log, newest first."""
    organization_id = principal.organization_id
    only = AuditFilter(
        event_types,
        project_ids,
        actor_ids,
        None if since is None else datetime.fromtimestamp(since, UTC),
        None if until is None else datetime.fromtimestamp(until, UTC),
    )
    async with readings.snapshot() as session:
        found = await audit.page(
            session,
            organization_id,
            only=only,
            after=await _cursor(session, organization_id, after, "after"),
            before=await _cursor(session, organization_id, before, "before"),
            limit=limit + 1,
        )
    # Read backwards, the one too many is the newest.
    has_more = len(found) > limit
    shown = found[-limit:] if before is not None and after is None else found[:limit]
    data = [audit_object(entry, name) for entry, name in shown]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


async def _cursor(
    session: AsyncSession, organization_id: str, entry_id: str | None, param: str
) -> AuditEntry | None:
    if entry_id is None:
        return None
    entry = None
    if may_be_id(entry_id):
        entry = await audit.get(session, organization_id, entry_id)
    if entry is None:
        raise NotFound(f"No audit log entry found with id '{entry_id[:64]}'.", param=param)
    return entry
