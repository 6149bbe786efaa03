"""Queries about uploads in parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import PartedUpload, UploadedPart
from store.repositories.statements import num_changed
from store.states import UploadStatus


async def add(session: AsyncSession, upload: PartedUpload) -> PartedUpload:
    """Insert an upload and read back what the database set."""
    session.add(upload)
    await session.flush()
    await session.refresh(upload)
    return upload


async def get(
    session: AsyncSession, project_id: str, upload_id: str, *, lock: bool = False
) -> PartedUpload | None:
    """A project's upload.

    Args:
        session: An open transaction.
        project_id: Uploads of others are as unknown as random ids.
        upload_id: Public id.
        lock: Until the transaction ends nobody else changes it or adds a part. Taken before the
            lock of the project (`quota.lock_project`).
    """
    query = select(PartedUpload).where(
        PartedUpload.id == upload_id, PartedUpload.project_id == project_id
    )
    if lock:
        query = query.with_for_update()
    return (
        await session.execute(query.execution_options(populate_existing=True))
    ).scalar_one_or_none()


async def add_part(
    session: AsyncSession, upload_id: str, part_id: str, size_bytes: int
) -> UploadedPart:
    """Insert a part and read back what the database set."""
    part = UploadedPart(id=part_id, upload_id=upload_id, size_bytes=size_bytes)
    session.add(part)
    await session.flush()
    await session.refresh(part)
    return part


async def part_sizes(session: AsyncSession, upload_id: str) -> dict[str, int]:
    """The bytes of every part that has come, by id."""
    query = select(UploadedPart.id, UploadedPart.size_bytes).where(
        UploadedPart.upload_id == upload_id
    )
    return dict((await session.execute(query)).all())


async def spent_parts(
    session: AsyncSession,
    *,
    limit: int,
    grace_s: float,
    upload_id: str | None = None,
    failed_before: datetime | None = None,
) -> Sequence[UploadedPart]:
    """Parts of uploads that have ended, or expired so long ago: nobody reads them any more.

    Locked; those that another collection has are left out, and those whose removal has failed; or
    only the latter are found, if it failed before then.
    """
    long_ago = func.statement_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, grace_s)
    query = (
        select(UploadedPart)
        .join(PartedUpload, PartedUpload.id == UploadedPart.upload_id)
        .where(
            or_(PartedUpload.status != UploadStatus.PENDING, PartedUpload.expires_at < long_ago),
            UploadedPart.removal_failed_at.is_(None)
            if failed_before is None
            else UploadedPart.removal_failed_at < failed_before,
        )
        .order_by(UploadedPart.removal_failed_at)
        .limit(limit)
        .with_for_update(skip_locked=True, of=UploadedPart)
    )
    if upload_id is not None:
        query = query.where(UploadedPart.upload_id == upload_id)
    return (await session.scalars(query)).all()


async def forget_part(session: AsyncSession, part: UploadedPart) -> None:
    """Remove a part whose bytes are gone."""
    await session.delete(part)


async def forget_past(session: AsyncSession, limit: int) -> int:
    """Remove up to `limit` uploads that are past their time and have no parts; how many."""
    has_parts = exists().where(UploadedPart.upload_id == PartedUpload.id)
    past = (
        select(PartedUpload.id)
        .where(PartedUpload.expires_at < func.statement_timestamp(), ~has_parts)
        .order_by(PartedUpload.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return await num_changed(session, delete(PartedUpload).where(PartedUpload.id.in_(past)))
