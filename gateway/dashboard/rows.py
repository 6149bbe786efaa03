"""The rows of one batch: found by state or custom id, and one of them with its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.batch_errors import StoredObjectMissing
from api.errors import NotFound
from batch.files import ByteRange
from batch.states import TERMINAL_BATCH
from gateway.auth.roles import Permission, may
from gateway.dashboard.access import Admin, AdminDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.dashboard.resources import Resources
from gateway.dashboard.row_errors import MAX_GROUPED, grouped
from gateway.dashboard.row_view import RowView, attempts_of, mapping
from gateway.tenants.actor import Action, Actor
from store.models import Batch, File
from store.repositories import overview, row_browser
from store.repositories.overview import BatchOverview
from store.repositories.row_browser import STATE_GROUPS, RowDetail, RowSummary

router = APIRouter()

PAGE_ROWS: Final = 50
GROUPS: Final = {"": "All", "failed": "Failed", "succeeded": "Succeeded", "engine": "At the engine",
                 "waiting": "Waiting", "stopped": "Stopped"}  # fmt: skip


class RowsQuery(BaseModel):
    """What an address of the page may say.

    Attributes:
        group: One of `STATE_GROUPS`; anything else means all.
        error: The code of an error; only rows that failed with it.
        search: Part of a custom id.
        after: The page begins behind this line.
        line: The row whose texts are shown.
    """

    group: str = ""
    error: str = Field(default="", max_length=200)
    search: str = Field(default="", max_length=512)
    after: int = Field(default=0, ge=0, le=2**31 - 1)
    line: int | None = Field(default=None, ge=1, le=2**31 - 1)

    @property
    def states(self) -> str:
        """The group of states that is meant; empty for all."""
        return self.group if self.group in STATE_GROUPS else ""

    @property
    def kept(self) -> dict[str, str]:
        """What the addresses of other pages and rows of the same search have too."""
        return {"group": self.states, "error": self.error, "search": self.search}


@dataclass(frozen=True)
class _Found:
    """What the database has for one address of the page.

    Attributes:
        batch: Whose rows.
        listed: The rows of the list, and whether more follow them.
        failures: Result lines of failed rows, where errors are counted.
        chosen: The row whose texts are shown.
        file: The input; none where it is gone, or where texts may not be read.
        around: The lines before and behind the chosen one, and the next failed one.
    """

    batch: BatchOverview
    listed: Sequence[RowSummary]
    has_more: bool
    failures: Sequence[bytes]
    chosen: RowDetail | None
    file: File | None
    around: Mapping[str, int | None]


@router.get("/batches/{batch_id}/rows")
async def rows_page(
    request: Request,
    resources: ResourcesDep,
    admin: AdminDep,
    batch_id: str,
    query: Annotated[RowsQuery, Query()],
) -> Response:
    """Rows in the order of their lines, and how their texts begin; one of them with its texts.

    The texts may be another project's, so that who read them is noted.
    """
    reads = may(admin.key.role, Permission.OPERATE)
    async with resources.database.unit_of_work() as work:
        found = await _find(work, admin, batch_id[:64], query, reads=reads)
        batch, chosen = found.batch.batch, found.chosen
        if reads and (found.listed or chosen):
            await _note(admin.actor(request), work, batch, found.listed, chosen)
    shown: list[RowDetail | RowSummary] = [*found.listed]
    if chosen is not None:
        shown.append(chosen)
    asked = await _requests(resources, found.file, shown, chosen)
    return page(
        request,
        resources,
        admin.session,
        "rows.html",
        admin=admin,
        batch=batch,
        file_name=found.batch.input_name,
        rows=[RowView(row, asked.get(row.line_no)) for row in found.listed],
        counts=_counts(found.batch),
        attempts=[] if chosen is None else attempts_of(chosen),
        errors=grouped(found.failures),
        error=query.error,
        counted=MAX_GROUPED if len(found.failures) == MAX_GROUPED else None,
        groups=GROUPS,
        group=query.states,
        search=query.search,
        line=query.line,
        view=None if chosen is None else RowView(chosen, asked.get(chosen.line_no)),
        around=found.around,
        kept=query.kept,
        after=query.after,
        last=found.listed[-1].line_no if found.has_more else None,
    )


async def _find(
    work: AsyncSession, admin: Admin, batch_id: str, query: RowsQuery, *, reads: bool
) -> _Found:
    """Read what the page shows; `reads` says whether it may show texts.

    Raises:
        NotFound: The organisation has no such batch.
    """
    found = await overview.one(work, admin.organization_id, batch_id)
    if found is None:
        raise NotFound(f"No batch found with id '{batch_id}'.")
    batch, line_no = found.batch, query.line or 0
    wanted = row_browser.Wanted(query.states, query.error, query.search)
    listed, has_more = await row_browser.page(
        work, batch, wanted, after=query.after, limit=PAGE_ROWS
    )
    failures: Sequence[bytes] = ()
    if query.states == "failed" or query.error:
        failures = await row_browser.failures(work, batch, limit=MAX_GROUPED)
    return _Found(
        batch=found,
        listed=listed,
        has_more=has_more,
        failures=failures,
        chosen=await row_browser.one(work, batch, line_no) if line_no and reads else None,
        file=await overview.file_of(work, batch, batch.input_file_id) if reads else None,
        around={
            "back": await row_browser.next_line(work, batch, line_no, back=True),
            "next": await row_browser.next_line(work, batch, line_no),
            "failed": await row_browser.next_line(work, batch, line_no, failed=True),
        },
    )


async def _note(
    actor: Actor,
    work: AsyncSession,
    batch: Batch,
    listed: Sequence[RowSummary],
    chosen: RowDetail | None,
) -> None:
    """Have the audit log say whose texts were shown: the first words of a list, and all of one."""
    data: dict[str, Any] = {} if chosen is None else {"line": chosen.line_no}
    if listed:
        data["listed"] = f"{listed[0].line_no} to {listed[-1].line_no}"
    await actor.record(
        work,
        Action.BATCH_ROW_READ,
        batch.id,
        project_id=batch.project_id,
        detail={"data": data},
    )


def _counts(found: BatchOverview) -> dict[str, int]:
    """How many rows each of `GROUPS` has."""
    batch = found.batch
    ended = batch.num_completed + batch.num_failed
    live = batch.status not in TERMINAL_BATCH
    return {
        "": batch.num_total,
        "failed": batch.num_failed - batch.num_stopped,
        "succeeded": batch.num_completed,
        "engine": found.num_running,
        "waiting": max(0, batch.num_total - ended - found.num_running) if live else 0,
        "stopped": batch.num_stopped,
    }


async def _requests(
    resources: Resources,
    file: File | None,
    rows: Sequence[RowDetail | RowSummary],
    chosen: RowDetail | None,
) -> dict[int, dict[str, Any]]:
    """Requests of rows by line, where the file is there; of the chosen one at any length."""
    wanted = {
        row.line_no: ByteRange(row.offset_bytes, row.length_bytes)
        for row in rows
        if row is chosen or row.length_bytes <= row_browser.LISTED_BYTES
    }
    if file is None or not wanted:
        return {}
    try:
        lines = await resources.file_store.read_ranges(file.storage_key, [*wanted.values()])
    except StoredObjectMissing:
        return {}
    return {line_no: mapping(orjson.loads(raw)) for line_no, raw in zip(wanted, lines, strict=True)}
