"""Queries about the parts of output and error files that are being written."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import OutputPart


async def written(session: AsyncSession, file_id: str) -> Sequence[OutputPart]:
    """The parts of a file that are stored, in order."""
    query = select(OutputPart).where(OutputPart.file_id == file_id).order_by(OutputPart.number)
    return (await session.execute(query)).scalars().all()


async def add(session: AsyncSession, part: OutputPart) -> None:
    """Note a part whose object is stored."""
    session.add(part)
    await session.flush()


async def forget(session: AsyncSession, batch_id: str) -> None:
    """The batch's files are listed: what was noted of their parts goes."""
    await session.execute(delete(OutputPart).where(OutputPart.batch_id == batch_id))
