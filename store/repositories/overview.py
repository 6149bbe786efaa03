"""Queries of the dashboard: everything an operator sees, over all projects of an organisation.

Each is bounded: by a page, by an index, or by a fixed number of samples; none scans a batch's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, func, select, true
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import ApiKey, Batch, BatchRow, File, Project, RowResult
from store.states import LIVE_STATUSES, BatchStatus, RowStatus

STATUS_GROUPS: dict[str, tuple[str, ...]] = {
    "live": LIVE_STATUSES,
    "done": (BatchStatus.COMPLETED,),
    "problem": (BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED),
}


@dataclass(frozen=True)
class BatchOverview:
    """One batch with what is needed to say how it goes.

    Attributes:
        batch: The row itself.
        project_name: Who owns it.
        key_name: Name of the key that created it, if known.
        input_name: File name of its input.
        input_bytes: Size of its input.
        num_running: Rows that are in an engine now.
        now: The database's clock when this was read.
    """

    batch: Batch
    project_name: str
    key_name: str | None
    input_name: str
    input_bytes: int
    num_running: int
    now: datetime

    @classmethod
    def of(cls, row: RowMapping) -> BatchOverview:
        """What a query made of `overviews` has found."""
        columns = [one.name for one in fields(cls) if one.name != "batch"]
        return cls(batch=row["Batch"], **{name: row[name] for name in columns})


@dataclass(frozen=True)
class BatchTotals:
    """How many batches there are per status, and open rows over all live ones."""

    by_status: dict[str, int]
    open_rows: int

    @property
    def all(self) -> int:
        """How many batches there are, whatever their status."""
        return sum(self.by_status.values())

    def of(self, group: str) -> int:
        """Batches of one of `STATUS_GROUPS`."""
        return sum(self.by_status.get(status, 0) for status in STATUS_GROUPS[group])


@dataclass(frozen=True)
class ProgressPoint:
    """`num_finished` rows had their result at `at`."""

    at: datetime
    num_finished: int


@dataclass(frozen=True)
class FailedRow:
    """One line of the error file to be, and where its request stands in the input."""

    line_no: int
    custom_id: str
    line: bytes
    created_at: datetime


def overviews(organization_id: str | None) -> Select[Any]:
    """Each batch of an organisation, or of all, with what a list shows; for `BatchOverview.of`."""
    # Few rows are at engines, and an index has them alone: they are counted once for all batches.
    leased = (
        select(BatchRow.batch_id, func.count().label("num"))
        .where(BatchRow.status == RowStatus.LEASED)
        .group_by(BatchRow.batch_id)
        .subquery()
    )
    return (
        select(
            Batch,
            Project.name.label("project_name"),
            ApiKey.name.label("key_name"),
            File.filename.label("input_name"),
            File.size_bytes.label("input_bytes"),
            func.coalesce(leased.c.num, 0).label("num_running"),
            func.statement_timestamp().label("now"),
        )
        .join(Project, Project.id == Batch.project_id)
        .join(File, File.id == Batch.input_file_id)
        .outerjoin(ApiKey, ApiKey.id == Batch.key_id)
        .outerjoin(leased, leased.c.batch_id == Batch.id)
        .where(_of(organization_id))
        # A reader that keeps a session open sees each tick's state, not its first one.
        .execution_options(populate_existing=True)
    )


def _of(organization_id: str | None) -> ColumnElement[bool]:
    """A project of the organisation; of any where none is named."""
    return true() if organization_id is None else Project.organization_id == organization_id


async def due(
    session: AsyncSession, organization_id: str | None, *, limit: int
) -> Sequence[BatchOverview]:
    """Live batches of an organisation or of all, those whose window ends first."""
    query = overviews(organization_id).where(Batch.status.in_(LIVE_STATUSES))
    query = query.order_by(Batch.expires_at, Batch.id).limit(limit)
    return [BatchOverview.of(row) for row in (await session.execute(query)).mappings()]


async def one(session: AsyncSession, organization_id: str, batch_id: str) -> BatchOverview | None:
    """One batch of any project of the organisation."""
    query = overviews(organization_id).where(Batch.id == batch_id)
    row = (await session.execute(query)).mappings().one_or_none()
    return None if row is None else BatchOverview.of(row)


async def input_names(
    session: AsyncSession, organization_id: str, batch_ids: Sequence[str]
) -> dict[str, str]:
    """What the input files of an organisation's batches are called, by batch id."""
    query = (
        select(Batch.id, File.filename)
        .join(File, File.id == Batch.input_file_id)
        .join(Project, Project.id == Batch.project_id)
        .where(_of(organization_id), Batch.id.in_(batch_ids))
    )
    return dict((await session.execute(query)).all())


async def totals(session: AsyncSession, organization_id: str | None) -> BatchTotals:
    """Counts for the head of the list."""
    open_rows = Batch.num_total - Batch.num_completed - Batch.num_failed
    query = (
        select(
            Batch.status,
            func.count(),
            func.coalesce(func.sum(open_rows).filter(Batch.status.in_(LIVE_STATUSES)), 0),
        )
        .join(Project, Project.id == Batch.project_id)
        .where(_of(organization_id))
        .group_by(Batch.status)
    )
    rows = (await session.execute(query)).all()
    return BatchTotals(
        by_status={status: count for status, count, _ in rows},
        open_rows=sum(int(rows_open) for _, _, rows_open in rows),
    )


async def num_by_status(session: AsyncSession) -> dict[str, int]:
    """How many batches there are per status, over all organisations; every status has a number."""
    query = select(Batch.status, func.count()).group_by(Batch.status)
    found = dict((await session.execute(query)).all())
    return {status: found.get(status, 0) for status in BatchStatus}


async def due_first(session: AsyncSession, *, limit: int) -> Sequence[Batch]:
    """Live batches of all organisations, those whose window ends first."""
    query = select(Batch).where(Batch.status.in_(LIVE_STATUSES)).order_by(Batch.expires_at)
    return (await session.execute(query.limit(limit))).scalars().all()


async def progress(
    session: AsyncSession, batch: Batch, *, max_points: int
) -> Sequence[ProgressPoint]:
    """The course of a batch so far: about `max_points` results, evenly chosen by number.

    The `seq` of results is dense, so each point is one look-up in an index.
    """
    if batch.num_results == 0:
        return []
    step = max(1, -(-batch.num_results // max_points))
    chosen = sorted({*range(1, batch.num_results + 1, step), batch.num_results})
    query = (
        select(RowResult.created_at, RowResult.seq)
        .where(RowResult.batch_id == batch.id, RowResult.seq.in_(chosen))
        .order_by(RowResult.seq)
    )
    return [ProgressPoint(at, seq) for at, seq in (await session.execute(query))]


async def failed_rows(session: AsyncSession, batch: Batch, *, limit: int) -> Sequence[FailedRow]:
    """The last rows that ended in an error, newest first."""
    if batch.num_failed == 0:
        return []
    query = (
        select(BatchRow.line_no, BatchRow.custom_id, RowResult.line, RowResult.created_at)
        .join(BatchRow, BatchRow.id == RowResult.row_id)
        .where(RowResult.batch_id == batch.id, RowResult.succeeded.is_(False))
        .order_by(RowResult.seq.desc())
        .limit(limit)
    )
    return [FailedRow(**row) for row in (await session.execute(query)).mappings()]


async def file_of(session: AsyncSession, batch: Batch, file_id: str) -> File | None:
    """A file of the batch's project whose bytes are still there."""
    query = select(File).where(
        File.id == file_id, File.project_id == batch.project_id, File.deleted_at.is_(None)
    )
    return (await session.execute(query)).scalar_one_or_none()
