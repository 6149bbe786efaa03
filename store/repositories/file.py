"""Queries about files. A file is visible until it is deleted or expires."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Batch, File
from store.states import LIVE_STATUSES


@dataclass(frozen=True)
class FilePosition:
    """Where a file stands in a listing; outlives the file."""

    created_at: datetime
    id: str


@dataclass(frozen=True)
class FilePage:
    """One page of a listing and whether another follows."""

    files: Sequence[File]
    has_more: bool


def _visible() -> ColumnElement[bool]:
    return and_(
        File.deleted_at.is_(None),
        or_(File.expires_at.is_(None), File.expires_at > func.statement_timestamp()),
    )


async def names(session: AsyncSession, file_ids: Collection[str]) -> dict[str, str]:
    """What files were called when they were uploaded, by id, deleted ones too."""
    if not file_ids:
        return {}
    found = await session.execute(select(File.id, File.filename).where(File.id.in_(file_ids)))
    return {row.id: row.filename for row in found}


async def add(session: AsyncSession, file: File) -> File:
    """Insert a file and read back what the database set."""
    session.add(file)
    await session.flush()
    await session.refresh(file)
    return file


async def add_all(session: AsyncSession, new: Sequence[File]) -> None:
    session.add_all(new)
    await session.flush()


async def get(
    session: AsyncSession, project_id: str, file_id: str, *, lock: bool = False
) -> File | None:
    """A visible file of a project.

    Args:
        session: An open transaction.
        project_id: Files of others are as unknown as random ids.
        file_id: Public id.
        lock: Keep the file from being deleted until the transaction ends.
    """
    query = select(File).where(File.id == file_id, File.project_id == project_id, _visible())
    if lock:
        query = query.with_for_update(read=True)
    return (await session.execute(query)).scalar_one_or_none()


async def position(session: AsyncSession, project_id: str, file_id: str) -> FilePosition | None:
    """Where a file stands, deleted and expired ones too: a caller may delete while it pages."""
    query = select(File.created_at, File.id).where(
        File.id == file_id, File.project_id == project_id
    )
    found = (await session.execute(query)).mappings().one_or_none()
    return None if found is None else FilePosition(**found)


async def page(
    session: AsyncSession,
    project_id: str,
    *,
    limit: int,
    newest_first: bool = True,
    purpose: str | None = None,
    after: FilePosition | None = None,
) -> FilePage:
    """Visible files of a project in order of (created_at, id), those after `after`."""
    key = tuple_(File.created_at, File.id)
    query = select(File).where(File.project_id == project_id, _visible())
    if purpose is not None:
        query = query.where(File.purpose == purpose)
    if after is not None:
        cursor = tuple_(after.created_at, after.id)
        query = query.where(key < cursor if newest_first else key > cursor)
    if newest_first:
        query = query.order_by(File.created_at.desc(), File.id.desc())
    else:
        query = query.order_by(File.created_at, File.id)
    found = (await session.execute(query.limit(limit + 1))).scalars().all()
    return FilePage(found[:limit], has_more=len(found) > limit)


async def mark_deleted(session: AsyncSession, project_id: str, file_id: str) -> File | None:
    """Hide a visible file from now on; None if there is none.

    Invariant: a transaction that made the file a batch's input holds a share lock on the row, so
    the check for live batches must come after this in the same transaction.
    """
    statement = (
        update(File)
        .where(File.id == file_id, File.project_id == project_id, _visible())
        .values(deleted_at=func.statement_timestamp())
        .returning(File)
    )
    return (await session.execute(statement)).scalar_one_or_none()


async def live_batch_reading(session: AsyncSession, file_id: str) -> Batch | None:
    """A batch that still needs this file as its input."""
    query = (
        select(Batch)
        .where(Batch.input_file_id == file_id, Batch.status.in_(LIVE_STATUSES))
        .order_by(Batch.id)
        .limit(1)
    )
    return (await session.execute(query)).scalar_one_or_none()


async def collectable(
    session: AsyncSession, limit: int, *, failed_before: datetime | None = None
) -> Sequence[File]:
    """Files whose bytes nobody can or may read any more, the longest gone first.

    Deleted or expired, and not the input of a live batch (whose window may end after the file's).
    They are locked; one that a transaction is just making a batch's input is left out. Such a
    transaction may have committed since this query began: ask `read_by_live_batches` after it.
    Those whose removal has failed are left out; or only they are found, if it failed before then.
    """
    # As the index `ix_files_gone` has it.
    gone_at = func.least(File.deleted_at, File.expires_at)
    in_use = exists().where(Batch.input_file_id == File.id, Batch.status.in_(LIVE_STATUSES))
    query = (
        select(File)
        .where(
            File.collected_at.is_(None),
            gone_at <= func.statement_timestamp(),
            ~in_use,
            File.removal_failed_at.is_(None)
            if failed_before is None
            else File.removal_failed_at < failed_before,
        )
        .order_by(gone_at if failed_before is None else File.removal_failed_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return (await session.execute(query)).scalars().all()


async def read_by_live_batches(session: AsyncSession, file_ids: Collection[str]) -> set[str]:
    """Those of the files that are the input of a live batch."""
    query = select(Batch.input_file_id).where(
        Batch.input_file_id.in_(file_ids), Batch.status.in_(LIVE_STATUSES)
    )
    return set((await session.execute(query)).scalars())
