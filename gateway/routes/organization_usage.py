"""`/organization/usage/completions`: tokens per day, key, model and class."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from api.errors import InvalidRequest
from gateway.dependencies import ClockDep, ReadingsDep, ViewerDep
from gateway.tenants.usage_report import Span, buckets, columns_of, unix_of
from store.repositories import usage as usages

router = APIRouter(tags=["organization"])

MAX_UNIX_S = 4_102_444_800
"""The first second of 2100: far enough, and every day of it can be reckoned with."""

Word = Literal["project_id", "api_key_id", "model", "batch", "service_tier"]


@router.get("/organization/usage/completions")
async def read_usage(  # noqa: PLR0913
    principal: ViewerDep,
    readings: ReadingsDep,
    clock: ClockDep,
    start_time: Annotated[int, Query(ge=0, le=MAX_UNIX_S)],
    end_time: Annotated[int | None, Query(ge=0, le=MAX_UNIX_S)] = None,
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
        if not page.isascii() or not page.isdigit() or int(page) > MAX_UNIX_S:
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
