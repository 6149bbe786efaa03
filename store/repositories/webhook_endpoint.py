"""Queries about webhook endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import WebhookEndpoint
from store.repositories.statements import now
from store.types import new_id

ID_PREFIX = "we_"


async def add(
    session: AsyncSession,
    *,
    project_id: str,
    name: str,
    url: str,
    event_types: Sequence[str],
    secret: bytes,
) -> WebhookEndpoint:
    """A new endpoint of a project."""
    created_at = await now(session)
    endpoint = WebhookEndpoint(
        id=new_id(ID_PREFIX),
        project_id=project_id,
        name=name,
        url=url,
        event_types=list(event_types),
        secret=secret,
        created_at=created_at,
        updated_at=created_at,
    )
    session.add(endpoint)
    await session.flush()
    return endpoint


async def get(
    session: AsyncSession, project_id: str, endpoint_id: str, *, lock: bool = False
) -> WebhookEndpoint | None:
    """The project's endpoint, if there is one of this id; locked against changes if asked for.

    The lock leaves new deliveries alone: they only need the endpoint to stay.
    """
    query = select(WebhookEndpoint).where(
        WebhookEndpoint.id == endpoint_id, WebhookEndpoint.project_id == project_id
    )
    if lock:
        query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return (await session.execute(query)).scalar_one_or_none()


async def known(session: AsyncSession, project_id: str, endpoint_ids: Iterable[str]) -> set[str]:
    """Those of some ids that are endpoints of the project."""
    query = select(WebhookEndpoint.id).where(
        WebhookEndpoint.project_id == project_id, WebhookEndpoint.id.in_(list(endpoint_ids))
    )
    return set((await session.execute(query)).scalars())


async def page(
    session: AsyncSession, project_id: str, *, after: WebhookEndpoint | None, limit: int
) -> Sequence[WebhookEndpoint]:
    """Up to `limit` endpoints, newest first, older than `after`."""
    query = select(WebhookEndpoint).where(WebhookEndpoint.project_id == project_id)
    if after is not None:
        place = tuple_(WebhookEndpoint.created_at, WebhookEndpoint.id)
        query = query.where(place < (after.created_at, after.id))
    query = query.order_by(WebhookEndpoint.created_at.desc(), WebhookEndpoint.id.desc())
    return (await session.execute(query.limit(limit))).scalars().all()


async def count(session: AsyncSession, project_id: str) -> int:
    """How many a project has; creations of the project wait for each other from here on."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:id, 21))"), {"id": project_id}
    )
    found = await session.scalar(
        select(func.count()).where(WebhookEndpoint.project_id == project_id)
    )
    return int(found or 0)


async def succeeded(session: AsyncSession, endpoint_id: str) -> None:
    """It answered: whatever was wrong with it is over."""
    await session.execute(
        text(
            "UPDATE webhook_endpoints SET failing_since_at = NULL, disabled_at = NULL"
            " WHERE id = :id AND (failing_since_at IS NOT NULL OR disabled_at IS NOT NULL)"
        ),
        {"id": endpoint_id},
    )


async def failed(session: AsyncSession, endpoint_id: str, *, disable_after_s: float) -> bool:
    """It failed; whether that made it disabled, after so long without a success."""
    await session.execute(
        text(
            "UPDATE webhook_endpoints SET failing_since_at = statement_timestamp()"
            " WHERE id = :id AND failing_since_at IS NULL"
        ),
        {"id": endpoint_id},
    )
    disabled = await session.scalar(
        text(
            "UPDATE webhook_endpoints SET disabled_at = statement_timestamp()"
            " WHERE id = :id AND disabled_at IS NULL"
            " AND failing_since_at < statement_timestamp() - make_interval(secs => :s)"
            " RETURNING 1"
        ),
        {"id": endpoint_id, "s": disable_after_s},
    )
    return disabled is not None
