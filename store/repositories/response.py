"""Queries about stored responses. One is visible until it is deleted or expires."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Batch, BatchRow, StoredResponse
from store.repositories.statements import changed, num_changed
from store.states import LIVE_STATUSES, RowStatus

MAX_CHAIN: Final = 1000
"""Responses that one may go on from, each from the one before."""


_TURNS: Final = """
    WITH RECURSIVE turns AS (
        SELECT id, previous_response_id, 1 AS depth
        FROM responses
        WHERE id = :id AND project_id = :project_id AND expires_at > statement_timestamp()
        UNION ALL
        SELECT r.id, r.previous_response_id, depth + 1
        FROM turns JOIN responses r ON r.id = turns.previous_response_id
        WHERE r.project_id = :project_id AND r.expires_at > statement_timestamp()
          AND depth < :most
    )
"""


@dataclass(frozen=True)
class Size:
    """How much a query would read."""

    num_items: int
    num_bytes: int

    def __add__(self, other: Size) -> Size:
        return Size(self.num_items + other.num_items, self.num_bytes + other.num_bytes)


@dataclass(frozen=True)
class NewResponse:
    """A response to store."""

    id: str
    previous_response_id: str | None
    body: bytes
    input_items: bytes
    item_ids: Sequence[str]


@dataclass(frozen=True)
class Turn:
    """One response of a chain, as what goes on from it needs it."""

    id: str
    previous_response_id: str | None
    body: bytes
    input_items: bytes


async def add(
    session: AsyncSession, project_id: str, response: NewResponse, lifetime: timedelta
) -> None:
    """Store a response for so long."""
    session.add(
        StoredResponse(
            id=response.id,
            project_id=project_id,
            previous_response_id=response.previous_response_id,
            body=response.body,
            input_items=response.input_items,
            item_ids=list(response.item_ids),
            expires_at=func.statement_timestamp() + lifetime,
        )
    )
    await session.flush()


async def get(
    session: AsyncSession, project_id: str, response_id: str, *, lock: bool = False
) -> StoredResponse | None:
    """A visible response of a project; locked until the transaction ends if that is wanted."""
    query = select(StoredResponse).where(
        StoredResponse.id == response_id,
        StoredResponse.project_id == project_id,
        StoredResponse.expires_at > func.statement_timestamp(),
    )
    if lock:
        query = query.with_for_update()
    return (await session.execute(query)).scalar_one_or_none()


async def batch_of(session: AsyncSession, project_id: str, response_id: str) -> str | None:
    """The batch whose one line makes a response of a project in the background."""
    query = select(Batch.id).where(Batch.response_id == response_id, Batch.project_id == project_id)
    found: str | None = await session.scalar(query)
    return found


async def program_wanted_at(session: AsyncSession, turn: Batch, model: str) -> datetime | None:
    """By when the first turn of a program was wanted; none if `turn` is the first.

    A program is of one project, window and model.
    """
    found: datetime | None = await session.scalar(
        select(func.min(func.coalesce(Batch.wanted_at, Batch.expires_at))).where(
            Batch.project_id == turn.project_id,
            Batch.continuation_id == turn.continuation_id,
            Batch.completion_window == turn.completion_window,
            Batch.model == model,
            Batch.id != turn.id,
        )
    )
    return found


async def has_begun(session: AsyncSession, project_id: str, response_id: str) -> bool:
    """Whether the row of a project's background response has left `pending`."""
    status = await session.scalar(
        select(BatchRow.status)
        .join(Batch, Batch.id == BatchRow.batch_id)
        .where(Batch.response_id == response_id, Batch.project_id == project_id)
    )
    return status != RowStatus.PENDING


async def states(session: AsyncSession, response_ids: Collection[str]) -> dict[str, str]:
    """The status of the row of each background response, or `over` once its batch has ended.

    Of one that was deleted there is none. For who follows many, whoever's they are.
    """
    found = await session.execute(
        text(
            """
            SELECT s.id, CASE WHEN b.status = ANY(:live) THEN r.status ELSE 'over' END AS state
            FROM responses s
            LEFT JOIN batches b ON b.response_id = s.id
            LEFT JOIN batch_rows r ON r.batch_id = b.id
            WHERE s.id = ANY(:ids)
            """
        ),
        {"ids": list(response_ids), "live": list(LIVE_STATUSES)},
    )
    return {one.id: one.state for one in found}


async def num_live(session: AsyncSession, project_id: str) -> int:
    """How many background responses of a project have not ended."""
    query = select(func.count()).where(
        Batch.project_id == project_id,
        Batch.response_id.is_not(None),
        Batch.status.in_(LIVE_STATUSES),
    )
    return int(await session.scalar(query) or 0)


async def remove(session: AsyncSession, project_id: str, response_id: str) -> bool:
    """Delete a response for good; whether it was there."""
    return await changed(
        session,
        delete(StoredResponse).where(
            StoredResponse.id == response_id,
            StoredResponse.project_id == project_id,
            StoredResponse.expires_at > func.statement_timestamp(),
        ),
    )


async def chain_size(session: AsyncSession, project_id: str, response_id: str) -> Size:
    """How much `chain` would read."""
    found = await session.execute(
        text(
            f"""
            {_TURNS}
            SELECT coalesce(sum(cardinality(r.item_ids)), 0)::bigint AS num_items,
                   coalesce(sum(octet_length(r.body) + octet_length(r.input_items)), 0)::bigint
                     AS num_bytes
            FROM turns JOIN responses r USING (id)
            """
        ),
        {"id": response_id, "project_id": project_id, "most": MAX_CHAIN},
    )
    return Size(**found.mappings().one())


async def chain(session: AsyncSession, project_id: str, response_id: str) -> list[Turn]:
    """A response and those it goes on from, the oldest first; ask for the `chain_size` before.

    The first has a `previous_response_id` where that one is not visible any more.
    """
    found = await session.execute(
        text(
            f"""
            {_TURNS}
            SELECT r.id, r.previous_response_id, r.body, r.input_items
            FROM turns JOIN responses r USING (id) ORDER BY depth DESC
            """
        ),
        {"id": response_id, "project_id": project_id, "most": MAX_CHAIN},
    )
    return [Turn(**row) for row in found.mappings()]


async def holders(
    session: AsyncSession, project_id: str, item_ids: Collection[str]
) -> tuple[list[str], Size]:
    """The newest visible response of a project that holds each item, and how much they are."""
    found = await session.execute(
        text(
            """
            SELECT DISTINCT ON (item) r.id, cardinality(r.item_ids) AS num_items,
                   octet_length(r.body) + octet_length(r.input_items) AS num_bytes
            FROM responses r CROSS JOIN unnest(r.item_ids) AS item
            WHERE r.project_id = :project_id AND r.item_ids && :ids AND item = ANY(:ids)
              AND r.expires_at > statement_timestamp()
            ORDER BY item, r.created_at DESC
            """
        ),
        {"project_id": project_id, "ids": list(item_ids)},
    )
    sizes = {row.id: Size(row.num_items, row.num_bytes) for row in found}
    return list(sizes), sum(sizes.values(), Size(0, 0))


async def among(
    session: AsyncSession, project_id: str, response_ids: Collection[str]
) -> Sequence[StoredResponse]:
    """These responses of a project, the newest first."""
    query = (
        select(StoredResponse)
        .where(StoredResponse.project_id == project_id, StoredResponse.id.in_(response_ids))
        .order_by(StoredResponse.created_at.desc())
    )
    return (await session.execute(query)).scalars().all()


async def collect(session: AsyncSession, limit: int) -> int:
    """Remove up to `limit` that have expired; how many."""
    gone = (
        select(StoredResponse.id)
        .where(StoredResponse.expires_at <= func.statement_timestamp())
        .order_by(StoredResponse.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return await num_changed(session, delete(StoredResponse).where(StoredResponse.id.in_(gone)))
