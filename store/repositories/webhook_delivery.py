"""Queries about webhook deliveries: the outbox of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import WebhookDelivery
from store.repositories.statements import forget_old, num_changed
from store.states import DeliveryStatus


@dataclass(frozen=True)
class ClaimedDelivery:
    """One attempt that is ours to make.

    Attributes:
        id: The `webhook-id`.
        attempts: Number of this attempt, from 1: the token that its outcome must carry.
        keys: What to sign with, the newest first.
    """

    id: str
    attempts: int
    endpoint_id: str
    event_id: str
    event_type: str
    event_at: datetime
    batch_id: str
    url: str
    keys: tuple[bytes, ...] = field(repr=False)


async def try_place(session: AsyncSession, worker: str, *, idle_limit_s: float) -> bool:
    """Be the only deliverer of a worker until this transaction ends; false where there is one.

    The server ends a transaction that is idle for `idle_limit_s`, so that a stopped process cannot
    hold the place for ever.
    """
    await session.execute(
        text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)"),
        {"limit": str(int(idle_limit_s * 1000))},
    )
    place = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:worker, 22))")
    return bool(await session.scalar(place, {"worker": f"deliverer of {worker}"}))


async def keep_place(session: AsyncSession) -> None:
    """Say that the deliverer of this transaction is alive.

    Raises:
        OperationalError: It has lost its place.
    """
    await session.execute(text("SELECT 1"))


async def publish(
    session: AsyncSession, event_ids: Mapping[str, str], *, status: str, event_type: str
) -> int:
    """Write a delivery for every endpoint that hears of an event of the batches; how many.

    In the transaction that appended the events (named by their `status`). An endpoint that is being
    deleted at the moment is passed over, not waited for: nothing about webhooks holds a batch up.

    Args:
        session: That transaction.
        event_ids: The public id of each event, by its batch.
        status: The status that the batches have entered.
        event_type: What receivers know it by.
    """
    return await num_changed(
        session,
        text(
            """
            INSERT INTO webhook_deliveries
              (id, endpoint_id, batch_event_id, event_id, event_type, batch_id, event_at, next_at)
            SELECT 'wh_' || replace(gen_random_uuid()::text, '-', ''), w.id, e.id,
                   p.event_id, :event_type, COALESCE(b.response_id, b.id), e.created_at,
                   e.created_at
            FROM unnest(CAST(:batch_ids AS text[]), CAST(:event_ids AS text[]))
              AS p(batch_id, event_id)
            JOIN batches b ON b.id = p.batch_id
            JOIN batch_events e ON e.batch_id = b.id AND e.to_status = :status
            CROSS JOIN LATERAL (
              SELECT w.id FROM webhook_endpoints w
              WHERE w.project_id = b.project_id AND w.disabled_at IS NULL
                AND :event_type = ANY(w.event_types)
                AND (b.webhook_endpoints IS NULL OR w.id = ANY(b.webhook_endpoints))
              FOR KEY SHARE SKIP LOCKED) w
            ON CONFLICT (endpoint_id, batch_event_id) DO NOTHING
            """
        ),
        {
            "batch_ids": list(event_ids),
            "event_ids": list(event_ids.values()),
            "status": status,
            "event_type": event_type,
        },
    )


async def claim(
    session: AsyncSession,
    *,
    limit: int,
    per_endpoint: int,
    per_project: int,
    lease_s: float,
) -> list[ClaimedDelivery]:
    """Up to `limit` due deliveries, each leased for one attempt.

    Those of the project with the fewest attempts under way go first, then the longest due. An
    endpoint has at most `per_endpoint` attempts under way, one that fails has one, and a project
    `per_project`, whoever made them: what is slow or dead takes no room from the others. An attempt
    whose lease runs out without an outcome counts as made, and is made again.
    """
    # One claim after the other: each sees what the one before it has leased.
    await session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('wh claim', 22))"))
    found = await session.execute(
        text(
            """
            WITH under_way AS (
              SELECT w.project_id, count(*) AS num FROM webhook_deliveries f
              JOIN webhook_endpoints w ON w.id = f.endpoint_id
              WHERE f.status = 'pending' AND f.leased_until_at > statement_timestamp()
              GROUP BY w.project_id
            ), due AS (
              SELECT due.id, due.next_at,
                     coalesce(u.num, 0) + row_number() OVER (
                       PARTITION BY w.project_id ORDER BY due.next_at) AS place
              FROM webhook_endpoints w
              LEFT JOIN under_way u ON u.project_id = w.project_id
              CROSS JOIN LATERAL (
                SELECT d.id, d.next_at FROM webhook_deliveries d
                WHERE d.endpoint_id = w.id AND d.status = 'pending'
                  AND d.next_at <= statement_timestamp()
                  AND (d.leased_until_at IS NULL OR d.leased_until_at <= statement_timestamp())
                ORDER BY d.next_at
                LIMIT greatest(0,
                  CASE WHEN w.failing_since_at IS NULL THEN :per_endpoint ELSE 1 END
                  - (SELECT count(*) FROM webhook_deliveries f
                     WHERE f.endpoint_id = w.id AND f.status = 'pending'
                       AND f.leased_until_at > statement_timestamp()))
                FOR UPDATE SKIP LOCKED) due
              WHERE w.disabled_at IS NULL
            ), picked AS (
              SELECT id FROM due WHERE place <= :per_project
              ORDER BY place, next_at LIMIT :limit)
            UPDATE webhook_deliveries d
            SET attempts = d.attempts + 1,
                leased_until_at = statement_timestamp() + make_interval(secs => :lease_s)
            FROM picked p, webhook_endpoints w
            WHERE d.id = p.id AND w.id = d.endpoint_id
            RETURNING d.id, d.attempts, d.endpoint_id, d.event_id, d.event_type, d.event_at,
                      d.batch_id, w.url, w.secret,
                      CASE WHEN w.old_secret_until_at > statement_timestamp()
                           THEN w.old_secret END AS old_secret
            """
        ),
        {
            "limit": limit,
            "per_endpoint": per_endpoint,
            "per_project": per_project,
            "lease_s": lease_s,
        },
    )
    return [_claimed(dict(row)) for row in found.mappings()]


def _claimed(row: dict[str, Any]) -> ClaimedDelivery:
    keys = (row.pop("secret"), row.pop("old_secret"))
    return ClaimedDelivery(**row, keys=tuple(bytes(key) for key in keys if key is not None))


async def any_due(session: AsyncSession) -> bool:
    """Whether an attempt should be under way and none is."""
    return bool(
        await session.scalar(
            text(
                """
                SELECT EXISTS (
                  SELECT 1 FROM webhook_deliveries d
                  JOIN webhook_endpoints w ON w.id = d.endpoint_id AND w.disabled_at IS NULL
                  WHERE d.status = 'pending' AND d.next_at <= statement_timestamp()
                    AND (d.leased_until_at IS NULL
                         OR d.leased_until_at <= statement_timestamp()))
                """
            )
        )
    )


async def settle(
    session: AsyncSession,
    claimed: ClaimedDelivery,
    *,
    http_status: int | None,
    error: str | None,
    next_at: datetime | None,
) -> bool:
    """Write the outcome of an attempt; false where the attempt is not the last one any more.

    Args:
        session: An open transaction.
        claimed: The attempt.
        http_status: What the receiver answered.
        error: Why that is no success; none for a success.
        next_at: When to try again after a failure; none gives the delivery up.
    """
    status = DeliveryStatus.PENDING if next_at is not None else DeliveryStatus.FAILED
    if error is None:
        status = DeliveryStatus.DELIVERED
    done = await session.scalar(
        text(
            """
            UPDATE webhook_deliveries
            SET status = CAST(:status AS text), last_status = :http_status, last_error = :error,
                leased_until_at = NULL, next_at = coalesce(:next_at, next_at),
                ended_at = CASE WHEN :status = 'pending' THEN NULL ELSE statement_timestamp() END
            WHERE id = :id AND attempts = :attempts AND status = 'pending'
            RETURNING 1
            """
        ),
        {
            "id": claimed.id,
            "attempts": claimed.attempts,
            "status": status,
            "http_status": http_status,
            "error": error,
            "next_at": next_at,
        },
    )
    return done is not None


async def give_up(session: AsyncSession, endpoint_id: str) -> int:
    """End what is pending for an endpoint that was disabled; how many."""
    return await num_changed(
        session,
        text(
            "UPDATE webhook_deliveries SET status = 'failed', ended_at = statement_timestamp(),"
            " leased_until_at = NULL WHERE endpoint_id = :id AND status = 'pending'"
        ),
        {"id": endpoint_id},
    )


async def recent(
    session: AsyncSession, endpoint_ids: Sequence[str], *, per_endpoint: int
) -> Sequence[WebhookDelivery]:
    """The latest deliveries to some endpoints, the newest event first."""
    chosen = text(
        """
        SELECT d.* FROM unnest(CAST(:ids AS text[])) AS e(id)
        CROSS JOIN LATERAL (
          SELECT * FROM webhook_deliveries d WHERE d.endpoint_id = e.id
          ORDER BY d.batch_event_id DESC LIMIT :per_endpoint) d
        ORDER BY d.batch_event_id DESC, d.id
        """
    ).bindparams(ids=list(endpoint_ids), per_endpoint=per_endpoint)
    found = await session.execute(
        select(WebhookDelivery).from_statement(chosen),
        execution_options={"populate_existing": True},
    )
    return found.scalars().all()


async def collect(session: AsyncSession, limit: int, *, older_than_s: float) -> int:
    """Forget up to `limit` deliveries that ended so long ago; how many."""
    return await forget_old(
        session, WebhookDelivery.ended_at, older_than_s=older_than_s, limit=limit
    )


@dataclass(frozen=True)
class WebhookTotals:
    """How webhooks get on, over all projects.

    Attributes:
        num_pending: Deliveries that neither arrived nor were given up.
        oldest_s: Age of the oldest event among them.
        num_failing: Endpoints without a success since their last failure, disabled ones aside.
        num_disabled: Endpoints that are disabled.
    """

    num_pending: int
    oldest_s: float
    num_failing: int
    num_disabled: int


async def totals(session: AsyncSession) -> WebhookTotals:
    """For the metrics; reads pending deliveries only."""
    found = await session.execute(
        text(
            """
            SELECT count(*) AS num_pending,
                   coalesce(extract(epoch FROM statement_timestamp() - min(event_at)), 0)::float8
                     AS oldest_s,
                   (SELECT count(*) FROM webhook_endpoints
                    WHERE failing_since_at IS NOT NULL AND disabled_at IS NULL) AS num_failing,
                   (SELECT count(*) FROM webhook_endpoints
                    WHERE disabled_at IS NOT NULL) AS num_disabled
            FROM webhook_deliveries WHERE status = 'pending'
            """
        )
    )
    return WebhookTotals(**found.mappings().one())
