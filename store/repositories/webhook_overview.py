"""Webhooks of an organisation's projects, for the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text, true
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Project, WebhookDelivery, WebhookEndpoint
from store.states import DeliveryStatus


@dataclass(frozen=True)
class EndpointOverview:
    """One endpoint, whose it is and what waits for it.

    Attributes:
        now: The database's clock when this was read.
    """

    endpoint: WebhookEndpoint
    project_name: str
    num_pending: int
    now: datetime


async def endpoints(
    session: AsyncSession, project_id: str | None, *, limit: int
) -> Sequence[EndpointOverview]:
    """The newest endpoints of the organisation that a project belongs to; of all without one.

    Those that are failing or disabled come first.
    """
    organization = select(Project.organization_id).where(Project.id == project_id).scalar_subquery()
    pending = (
        select(func.count())
        .where(
            WebhookDelivery.endpoint_id == WebhookEndpoint.id,
            WebhookDelivery.status == DeliveryStatus.PENDING,
        )
        .correlate(WebhookEndpoint)
        .scalar_subquery()
    )
    query = (
        select(
            WebhookEndpoint,
            Project.name.label("project_name"),
            pending.label("num_pending"),
            func.statement_timestamp().label("now"),
        )
        .join(Project, Project.id == WebhookEndpoint.project_id)
        .where(true() if project_id is None else Project.organization_id == organization)
        .order_by(
            WebhookEndpoint.failing_since_at.is_(None),
            WebhookEndpoint.created_at.desc(),
            WebhookEndpoint.id.desc(),
        )
        .limit(limit)
    )
    return [
        EndpointOverview(row.WebhookEndpoint, row.project_name, row.num_pending, row.now)
        for row in await session.execute(query)
    ]


async def find(
    session: AsyncSession, organization_id: str, endpoint_id: str
) -> WebhookEndpoint | None:
    """An endpoint of any project of the organisation."""
    query = (
        select(WebhookEndpoint)
        .join(Project, Project.id == WebhookEndpoint.project_id)
        .where(WebhookEndpoint.id == endpoint_id, Project.organization_id == organization_id)
    )
    return (await session.execute(query)).scalar_one_or_none()


async def replay(session: AsyncSession, organization_id: str, delivery_id: str) -> str | None:
    """Send a delivery that has ended once more; the project that it belongs to.

    None where there is none of this id, it has not ended, or its endpoint is disabled. Its attempts
    go on counting: one that fails again is given up as the schedule says.
    """
    found = await session.execute(
        text(
            """
            UPDATE webhook_deliveries d
            SET status = 'pending', ended_at = NULL, next_at = statement_timestamp()
            FROM webhook_endpoints w JOIN projects p ON p.id = w.project_id
            WHERE d.id = :id AND d.status <> 'pending' AND w.id = d.endpoint_id
              AND w.disabled_at IS NULL AND p.organization_id = :organization_id
            RETURNING w.project_id
            """
        ),
        {"id": delivery_id, "organization_id": organization_id},
    )
    return found.scalar_one_or_none()
