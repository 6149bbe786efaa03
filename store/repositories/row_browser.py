"""Rows of one batch as an operator looks through them; what they say is read one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy import ColumnElement, LargeBinary, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Batch, BatchRow, RowResult
from store.states import RowStatus

STATE_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "succeeded": (RowStatus.SUCCEEDED,),
    "failed": (RowStatus.ERRORED,),
    "engine": (RowStatus.LEASED,),
    "waiting": (RowStatus.PENDING,),
    "stopped": (RowStatus.CANCELLED, RowStatus.EXPIRED),
}


LISTED_BYTES: Final = 32 * 1024
"""A line that is longer is not read for a list."""


@dataclass(frozen=True)
class RowSummary:
    """One row of a list.

    Attributes:
        took_ms: From sending it to the engine until the answer; none where that is not known.
        line: Its line of the output or error file; none before, and none of a long answer.
    """

    line_no: int
    custom_id: str
    status: str
    attempt: int
    offset_bytes: int
    length_bytes: int
    prompt_tokens: int | None
    completion_tokens: int | None
    took_ms: int | None
    line: bytes | None


@dataclass(frozen=True)
class RowDetail:
    """One row with the place of its request and the line of its result.

    Attributes:
        num_losses: How often an engine was lost while it was there.
        num_refusals: How often an engine turned it away.
        last_error: What its last failed attempt came to.
        took_ms: From sending it to the engine until the answer; none where that is not known.
        line: Its line of the output or error file; none before.
    """

    line_no: int
    custom_id: str
    status: str
    attempt: int
    num_losses: int
    num_refusals: int
    last_error: dict[str, Any] | None
    offset_bytes: int
    length_bytes: int
    line: bytes | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    took_ms: int | None
    ended_at: datetime | None


@dataclass(frozen=True)
class Wanted:
    """Which rows of a batch.

    Attributes:
        group: One of `STATE_GROUPS`; empty: all.
        error: A code that the error of their results must have (its line says it, as a JSON
            string); empty: any, or none.
        search: What their custom ids must hold; empty: anything.
    """

    group: str = ""
    error: str = ""
    search: str = ""


async def page(
    session: AsyncSession, batch: Batch, wanted: Wanted, *, after: int, limit: int
) -> tuple[Sequence[RowSummary], bool]:
    """Rows in the order of their lines, and whether more follow.

    Args:
        session: An open transaction.
        batch: Whose rows.
        wanted: Which of them.
        after: Only lines behind this one.
        limit: How many at most.
    """
    rows = (
        select(
            BatchRow.id,
            BatchRow.line_no,
            BatchRow.custom_id,
            BatchRow.status,
            BatchRow.attempt,
            BatchRow.offset_bytes,
            BatchRow.length_bytes,
        )
        .where(BatchRow.batch_id == batch.id, BatchRow.line_no > after)
        .order_by(BatchRow.line_no)
        .limit(limit + 1)
    )
    if wanted.group:
        rows = rows.where(BatchRow.status.in_(STATE_GROUPS[wanted.group]))
    if wanted.search:
        rows = rows.where(func.strpos(BatchRow.custom_id, wanted.search) > 0)
    if wanted.error:
        # Postgres may refuse to read a line as JSON (a NUL in a text): its bytes are searched.
        said = literal(orjson.dumps(wanted.error), LargeBinary)
        rows = rows.join(RowResult, RowResult.row_id == BatchRow.id).where(
            ~RowResult.succeeded, func.position(said.op("IN")(RowResult.line)) > 0
        )
    is_short = func.octet_length(RowResult.line) <= LISTED_BYTES
    # Results are joined to the page alone, not to every row of the batch.
    shown = rows.subquery()
    query = (
        select(
            shown.c.line_no,
            shown.c.custom_id,
            shown.c.status,
            shown.c.attempt,
            shown.c.offset_bytes,
            shown.c.length_bytes,
            RowResult.prompt_tokens,
            RowResult.completion_tokens,
            RowResult.took_ms,
            case((is_short | ~RowResult.succeeded, RowResult.line)).label("line"),
        )
        .outerjoin(RowResult, RowResult.row_id == shown.c.id)
        .order_by(shown.c.line_no)
    )
    found = [RowSummary(**row) for row in (await session.execute(query)).mappings()]
    return found[:limit], len(found) > limit


async def failures(session: AsyncSession, batch: Batch, *, limit: int) -> Sequence[bytes]:
    """Lines of the error file, the newest first."""
    query = (
        select(RowResult.line)
        .where(RowResult.batch_id == batch.id, ~RowResult.succeeded)
        .order_by(RowResult.seq.desc())
        .limit(limit)
    )
    return list(await session.scalars(query))


async def one(session: AsyncSession, batch: Batch, line_no: int) -> RowDetail | None:
    """The row of a line."""
    query = (
        select(
            BatchRow.line_no,
            BatchRow.custom_id,
            BatchRow.status,
            BatchRow.attempt,
            BatchRow.num_losses,
            BatchRow.num_refusals,
            BatchRow.last_error,
            BatchRow.offset_bytes,
            BatchRow.length_bytes,
            RowResult.line,
            RowResult.prompt_tokens,
            RowResult.cached_tokens,
            RowResult.completion_tokens,
            RowResult.took_ms,
            RowResult.created_at.label("ended_at"),
        )
        .outerjoin(RowResult, RowResult.row_id == BatchRow.id)
        .where(BatchRow.batch_id == batch.id, BatchRow.line_no == line_no)
    )
    found = (await session.execute(query)).mappings().one_or_none()
    return None if found is None else RowDetail(**found)


async def next_line(
    session: AsyncSession, batch: Batch, line_no: int, *, failed: bool = False, back: bool = False
) -> int | None:
    """The line of the nearest row behind a line, or before it; none at the end.

    Args:
        session: An open transaction.
        batch: Whose rows.
        line_no: Where to begin.
        failed: Only rows that ended in an error.
        back: Look before it.
    """
    side: ColumnElement[bool] = BatchRow.line_no < line_no if back else BatchRow.line_no > line_no
    nearest = func.max(BatchRow.line_no) if back else func.min(BatchRow.line_no)
    query = select(nearest).where(BatchRow.batch_id == batch.id, side)
    if failed:
        query = query.where(BatchRow.status == RowStatus.ERRORED)
    return (await session.execute(query)).scalar_one()
