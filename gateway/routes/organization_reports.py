"""What an organisation's operators read: its audit log, and what its projects used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import may_be_id
from api.errors import InvalidRequest, NotFound
from gateway.dependencies import AuditorDep, ClockDep, ReadingsDep, ViewerDep
from gateway.routes.organization_projects import PageLimit
from gateway.tenants.shapes import audit_object
from gateway.tenants.usage_report import Span, buckets, columns_of, unix_of
from store.models import AuditEntry
from store.repositories import audit
from store.repositories import usage as usages
from store.repositories.audit import AuditFilter

router = APIRouter(tags=["organization"])

MAX_USAGE_UNIX_S = 4_102_444_800
"""The first second of 2100: far enough, and every day of it can be reckoned with."""

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


# --- `/organization/usage/completions`: tokens per day, key, model and class.


Word = Literal["project_id", "api_key_id", "model", "batch", "service_tier"]


@router.get("/organization/usage/completions")
async def read_usage(  # noqa: PLR0913
    principal: ViewerDep,
    readings: ReadingsDep,
    clock: ClockDep,
    start_time: Annotated[int, Query(ge=0, le=MAX_USAGE_UNIX_S)],
    end_time: Annotated[int | None, Query(ge=0, le=MAX_USAGE_UNIX_S)] = None,
    bucket_width: Annotated[Literal["1d"], Query()] = "1d",
    group_by: Annotated[list[Word], Query(alias="group_by[]", max_length=5)] = [],  # noqa: B006
    project_ids: Annotated[list[str], Query(alias="project_ids[]", max_length=100)] = [],  # noqa: B006
    api_key_ids: Annotated[list[str], Query(alias="api_key_ids[]", max_length=100)] = [],  # noqa: B006
    models: Annotated[list[str], Query(alias="models[]", max_length=100)] = [],  # noqa: B006
    batch: bool | None = None,
    limit: Annotated[int, Query(ge=1, le=31)] = 7,
    page: Annotated[str | None, Query(max_length=20)] = None,
) -> dict[str, Any]:
    """Usage of the organisation, one bucket per day; `page` is the `next_page` of a reply."""
    if page is not None:
        if not page.isascii() or not page.isdigit() or int(page) > MAX_USAGE_UNIX_S:
            raise InvalidRequest("page must be the next_page of an earlier reply.", param="page")
        start_time = int(page)
    words = list(dict.fromkeys(group_by))
    whole = Span.of(start_time, end_time, now=clock.now())
    span = whole.first(limit)
    wanted = {"project_id": project_ids, "key_id": api_key_ids, "model": models}
    only = {column: values for column, values in wanted.items() if values}
    if batch is not None:
        only["request_class"] = ["offline"] if batch else ["online", "flex"]
    async with readings.snapshot() as session:
        lines = await usages.report(
            session,
            principal.organization_id,
            since=span.since,
            until=span.until,
            by=columns_of(words),
            only=only,
        )
    has_more = span.until < whole.until
    return {
        "object": "page",
        "data": buckets(span, lines, words),
        "has_more": has_more,
        "next_page": str(unix_of(span.until)) if has_more else None,
    }
