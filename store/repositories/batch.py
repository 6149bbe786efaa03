"""Queries about batches.

Statuses and legal moves are the caller's business (batch/states.py): functions here take them as
words, so that the store knows nothing of the state machine but its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Executable,
    Text,
    any_,
    bindparam,
    literal,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import defer

from store.models import Batch
from store.models.batch import OPEN, ROWS_DUE_AT, ROWS_MODEL
from store.repositories import event
from store.repositories.quota import BatchUse
from store.repositories.row import READY
from store.session import ACTOR
from store.states import TERMINAL_BATCH
from store.types import new_id

ID_PREFIX = "batch_"


@dataclass(frozen=True)
class LiveBatch:
    """A batch that rows may be claimed from, as the dispatcher's order sees it.

    Attributes:
        num_open: Rows without a result, leased ones included; 0 if none can be claimed now.
        due_at: By when its rows are wanted, for the order among all rows at an engine: the end of
            its window; for a background response its creation, which is before any other.
        storage_key: Where the input file's bytes are.
        key_id: The key that created it, for the account.
        model: What its lines ask for; none for a batch validated before that was kept.
        answer_tokens: Mean length of its answers; none where it has none yet.
        traceparent: The trace that its rows continue.
    """

    id: str
    project_id: str
    endpoint: str
    priority: int
    num_open: int
    due_at: datetime
    storage_key: str
    key_id: str | None = None
    model: str | None = None
    answer_tokens: float | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class Room:
    """How many batches a project may add: as many as keep both sums below their limits.

    What was counted at one instant and what was made since are together at least what there is
    now: batches end, and grow older than an hour. So nothing is counted where that leaves room.

    Attributes:
        counted: What was counted.
        live_batches: The limit of a project without one of its own.
        batches_per_hour: The same.
    """

    counted: BatchUse
    live_batches: int
    batches_per_hour: int


class NoRoom(Exception):
    """The project may have no more batches, as far as its `Room` says."""


async def add(  # noqa: PLR0913
    session: AsyncSession,
    *,
    project_id: str,
    key_id: str | None,
    endpoint: str,
    completion_window: str,
    completion_window_s: int,
    input_file_id: str,
    metadata: Mapping[str, str] | None,
    output_expires_after_s: int | None,
    traceparent: str | None = None,
    priority: int = 0,
    webhook_endpoints: Sequence[str] | None = None,
    retry_of: str | None = None,
    response_id: str | None = None,
    continuation_id: str | None = None,
    room: Room | None = None,
) -> Batch:
    """A new batch in `validating`, with its first event; its window by the database's clock.

    One statement, which locks the project's row: its next creation waits for this transaction.
    What a background response is made by counts as no batch.

    Raises:
        NoRoom: The project may not have it; nothing was written.
    """
    values: dict[str, Any] = {
        "id": new_id(ID_PREFIX),
        "project_id": project_id,
        "key_id": key_id,
        "endpoint": endpoint,
        "completion_window": completion_window,
        "input_file_id": input_file_id,
        "metadata": dict(metadata) if metadata is not None else None,
        "output_expires_after_s": output_expires_after_s,
        "traceparent": traceparent,
        "priority": priority,
        "webhook_endpoints": webhook_endpoints,
        "retry_of": retry_of,
        "response_id": response_id,
        "continuation_id": continuation_id,
        "completion_window_s": completion_window_s,
        "actor": session.info.get(ACTOR),
    }
    statement = _ADD if response_id is None else _ADD_UNCOUNTED
    if room is not None:
        statement = _ADD_WITHIN
        values |= {
            "num_made": room.counted.num_made,
            "num_live": room.counted.num_live,
            "num_of_hour": room.counted.num_of_hour,
            "max_live": room.live_batches,
            "max_of_hour": room.batches_per_hour,
        }
    batch: Batch | None = (await session.execute(statement, values)).scalar_one_or_none()
    if batch is None:
        raise NoRoom
    return batch


_COLUMNS: Final = (
    "id, project_id, key_id, endpoint, completion_window, input_file_id, metadata,"
    " output_expires_after_s, traceparent, priority, webhook_endpoints, retry_of, response_id,"
    " continuation_id"
)
_COUNT_ONE: Final = (
    "UPDATE projects SET batches_made = batches_made + 1 WHERE id = :project_id {only}"
    # Not the statement's: that was before it had the lock, which batches are ordered by.
    " RETURNING clock_timestamp() AS at"
)
_WITHIN: Final = """
    AND batches_made - :num_made + :num_live < COALESCE(live_batches, :max_live)
    AND batches_made - :num_made + :num_of_hour < COALESCE(batches_per_hour, :max_of_hour)
"""


def _adding(begun: str) -> Executable:
    values = ", ".join(f":{name}" for name in _COLUMNS.split(", "))
    statement = text(
        f"""
        WITH begun AS ({begun}), batch AS (
          INSERT INTO batches ({_COLUMNS}, created_at, stage_at, expires_at)
          SELECT {values}, at, at, at + make_interval(secs => :completion_window_s) FROM begun
          RETURNING *
        ), told AS (
          INSERT INTO batch_events (batch_id, event, to_status, actor)
          SELECT id, 'created', status, :actor FROM batch
        )
        SELECT * FROM batch
        """
    ).bindparams(
        bindparam("metadata", type_=JSONB(none_as_null=True)),
        bindparam("webhook_endpoints", type_=ARRAY(Text)),
    )
    return select(Batch).from_statement(statement)


_ADD: Final = _adding(_COUNT_ONE.format(only=""))
_ADD_WITHIN: Final = _adding(_COUNT_ONE.format(only=_WITHIN))
_ADD_UNCOUNTED: Final = _adding("SELECT statement_timestamp() AS at")


async def get(session: AsyncSession, project_id: str, batch_id: str) -> Batch | None:
    """The project's batch, if there is one of this id."""
    found = await session.execute(
        select(Batch).where(
            Batch.id == batch_id, Batch.project_id == project_id, Batch.response_id.is_(None)
        )
    )
    return found.scalar_one_or_none()


async def find(session: AsyncSession, batch_id: str) -> Batch | None:
    """A batch of any project, read anew: for stages, which act for all of them."""
    return await session.get(Batch, batch_id, populate_existing=True)


async def lock(session: AsyncSession, batch_id: str) -> Batch | None:
    """The batch, locked until the transaction ends.

    Lock order everywhere: the batch first, its rows after; two batches in the order of their ids.
    """
    return (await lock_all(session, [batch_id])).get(batch_id)


async def lock_all(
    session: AsyncSession, batch_ids: Collection[str], *, skip_locked: bool = False
) -> dict[str, Batch]:
    """Those of the batches that there are, locked in the order of their ids.

    Args:
        session: An open transaction.
        batch_ids: Which batches.
        skip_locked: Leave out those that another transaction has, and wait for none.
    """
    found = await session.execute(
        select(Batch)
        .where(_among(batch_ids))
        .order_by(Batch.id)
        .with_for_update(skip_locked=skip_locked)
        .execution_options(populate_existing=True)
    )
    return {batch.id: batch for batch in found.scalars()}


async def find_all(session: AsyncSession, batch_ids: Collection[str]) -> Sequence[Batch]:
    """Batches of any project, read anew, in the order of their ids."""
    found = await session.execute(
        select(Batch)
        .where(_among(batch_ids))
        .order_by(Batch.id)
        .execution_options(populate_existing=True)
    )
    return found.scalars().all()


def _among(batch_ids: Collection[str]) -> ColumnElement[bool]:
    return Batch.id == any_(literal(list(batch_ids), ARRAY(Text)))


async def page(
    session: AsyncSession, project_id: str, *, after: Batch | None, limit: int
) -> Sequence[Batch]:
    """Up to `limit` batches, newest first, older than `after` (rows R-27, R-28).

    Without their errors, which may be long: see `errors_json`.
    """
    query = (
        select(Batch)
        .options(defer(Batch.errors))
        .where(Batch.project_id == project_id, Batch.response_id.is_(None))
    )
    if after is not None:
        query = query.where(tuple_(Batch.created_at, Batch.id) < (after.created_at, after.id))
    query = query.order_by(Batch.created_at.desc(), Batch.id.desc()).limit(limit)
    return (await session.execute(query)).scalars().all()


async def errors_json(session: AsyncSession, project_id: str, batch_id: str) -> str | None:
    """The validation errors of a project's batch as JSON, as they are stored."""
    found: str | None = await session.scalar(
        text("SELECT errors::text FROM batches WHERE id = :id AND project_id = :project_id"),
        {"id": batch_id, "project_id": project_id},
    )
    return found


@dataclass(frozen=True)
class Move:
    """A batch that is to enter a status.

    Attributes:
        target: The status to enter.
        values: Further columns to set with it.
        detail: What the event remembers.
    """

    batch_id: str
    target: str
    values: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] | None = None


async def move(
    session: AsyncSession, moves: Collection[Move], sources: Mapping[str, Collection[str]]
) -> list[Batch]:
    """Let batches enter a status, stamp its instant, append an event.

    Args:
        session: An open transaction.
        moves: At most one of each batch.
        sources: The statuses from which each target may be entered.

    Returns:
        The batches that were moved, as they are now, in the order of their ids.
    """
    known = await lock_all(session, [one.batch_id for one in moves])
    now = await session.scalar(text("SELECT statement_timestamp()"))
    moved = []
    for one in sorted(moves, key=lambda one: one.batch_id):
        batch = known.get(one.batch_id)
        if batch is None or batch.status not in sources[one.target]:
            continue
        event.add(
            session,
            batch.id,
            one.target,
            from_status=batch.status,
            to_status=one.target,
            detail=one.detail,
        )
        for column, value in {"status": one.target, f"{one.target}_at": now, **one.values}.items():
            setattr(batch, column, value)
        moved.append(batch)
    await session.flush()
    return moved


async def live(
    session: AsyncSession, models: Collection[str], *, held: Collection[str] = (), per_project: int
) -> list[LiveBatch]:
    """The batches of these models that rows may be claimed from, and those that rows are held of.

    Of each project the `per_project` first ones with a row to claim: by priority, then by when
    their rows are due. So the cost does not grow with how many batches are live.
    """
    found = await session.execute(
        _LIVE, {"models": list(models), "held": list(held), "per_project": per_project}
    )
    return [LiveBatch(**row) for row in found.mappings()]


# The projects one by one by their first entry in the index, and of each its first batches.
_LIVE = text(
    f"""
    WITH RECURSIVE owners(model, project_id) AS (
      SELECT m.model, (SELECT project_id FROM batches WHERE {OPEN} AND {ROWS_MODEL} = m.model
                       ORDER BY project_id LIMIT 1)
      FROM unnest(array_append(CAST(:models AS text[]), '')) AS m(model)
      UNION ALL
      SELECT o.model, (SELECT project_id FROM batches
                       WHERE {OPEN} AND {ROWS_MODEL} = o.model AND project_id > o.project_id
                       ORDER BY project_id LIMIT 1)
      FROM owners o WHERE o.project_id IS NOT NULL
    ), wanted AS (
      SELECT first.id FROM owners o CROSS JOIN LATERAL (
        SELECT b.id FROM batches b
        WHERE {OPEN} AND {ROWS_MODEL} = o.model AND project_id = o.project_id
          AND expires_at > statement_timestamp()
          AND EXISTS (SELECT 1 FROM batch_rows r
                      WHERE r.batch_id = b.id AND r.status = 'pending' AND {READY})
        ORDER BY priority DESC, {ROWS_DUE_AT}, b.id LIMIT :per_project) first
    ), listed AS (
      SELECT id, true AS has_rows FROM wanted
      UNION ALL
      SELECT id, false FROM unnest(CAST(:held AS text[])) AS h(id)
      WHERE id NOT IN (SELECT id FROM wanted)
    )
    SELECT b.id, b.project_id, b.endpoint, b.priority,
           CASE WHEN l.has_rows THEN b.num_total - b.num_completed - b.num_failed
                ELSE 0 END AS num_open, b.due_at,
           f.storage_key, b.key_id, b.model,
           b.completion_tokens::float8 / NULLIF(b.num_completed, 0) AS answer_tokens,
           b.traceparent
    FROM listed l CROSS JOIN LATERAL (
      SELECT *, {ROWS_DUE_AT} AS due_at FROM batches
      WHERE id = l.id AND {OPEN} AND expires_at > statement_timestamp() LIMIT 1) b
    JOIN files f ON f.id = b.input_file_id
    """
)


async def stopped(session: AsyncSession, batch_ids: Collection[str]) -> dict[str, str]:
    """Those of the batches whose rows must not run now, and the status that their rows get.

    `cancelled` for a batch that was cancelled, `expired` for one whose window has ended, `pending`
    for one that is paused.
    """
    found = await session.execute(
        text(
            """
            SELECT id, CASE WHEN status IN ('cancelling', 'cancelled') THEN 'cancelled'
                            WHEN status = 'in_progress' AND expires_at > statement_timestamp()
                              THEN 'pending'
                            ELSE 'expired' END AS row_status
            FROM batches
            WHERE id = ANY(:ids)
              AND (status <> 'in_progress' OR paused_at IS NOT NULL
                   OR expires_at <= statement_timestamp())
            """
        ),
        {"ids": list(batch_ids)},
    )
    return {row.id: row.row_status for row in found}


async def result_states(session: AsyncSession, batch_ids: Collection[str]) -> dict[str, str]:
    """What of each batch changes whenever somebody can read more results of it."""
    found = await session.execute(
        text("SELECT id, status || ' ' || num_results AS state FROM batches WHERE id = ANY(:ids)"),
        {"ids": list(batch_ids)},
    )
    return {one.id: one.state for one in found}


async def is_overdue(session: AsyncSession, batch_id: str) -> bool:
    """Whether the batch's window has ended, by the database's clock."""
    return bool(
        await session.scalar(
            text("SELECT expires_at <= statement_timestamp() FROM batches WHERE id = :id"),
            {"id": batch_id},
        )
    )


async def with_expired_rows(session: AsyncSession, batch_ids: Collection[str]) -> set[str]:
    """The batches of which a row was ended by the window. Looks at rows only once it has ended."""
    found = await session.scalars(
        text(
            """
            SELECT b.id FROM batches b
            WHERE b.id = ANY(:ids) AND b.expires_at <= statement_timestamp() AND EXISTS (
              SELECT 1 FROM batch_rows r WHERE r.batch_id = b.id AND r.status = 'expired')
            """
        ),
        {"ids": list(batch_ids)},
    )
    return set(found)


async def try_exclusive(
    session: AsyncSession, batch_ids: Collection[str], *, idle_limit_s: float
) -> set[str]:
    """Take the finalization of batches for this transaction: of those that no other one has.

    The server ends the transaction if it is idle for `idle_limit_s`, so that a stopped process
    cannot hold it for ever.
    """
    await session.execute(
        text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)"),
        {"limit": str(int(idle_limit_s * 1000))},
    )
    found = await session.scalars(
        text(
            "SELECT id FROM unnest(CAST(:ids AS text[])) AS b(id)"
            " WHERE pg_try_advisory_xact_lock(hashtextextended(id, 20))"
        ),
        {"ids": list(batch_ids)},
    )
    return set(found)


def is_over(batch: Batch) -> bool:
    """Whether the batch is in a terminal status."""
    return batch.status in TERMINAL_BATCH
