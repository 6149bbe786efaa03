"""Webhooks of an organisation's projects, for the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Project, WebhookDelivery, WebhookEndpoint


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
    session: AsyncSession, project_id: str, *, limit: int
) -> Sequence[EndpointOverview]:
    """The newest endpoints of the organisation that a project belongs to.

    Those that are failing or disabled come first.
    """
    organization = select(Project.organization_id).where(Project.id == project_id).scalar_subquery()
    pending = (
        select(func.count())
        .where(
            WebhookDelivery.endpoint_id == WebhookEndpoint.id, WebhookDelivery.status == "pending"
        )
        .correlate(WebhookEndpoint)
        .scalar_subquery()
    )
    query = (
        select(WebhookEndpoint, Project.name, pending, func.statement_timestamp())
        .join(Project, Project.id == WebhookEndpoint.project_id)
        .where(Project.organization_id == organization)
        .order_by(
            WebhookEndpoint.failing_since_at.is_(None),
            WebhookEndpoint.created_at.desc(),
            WebhookEndpoint.id.desc(),
        )
        .limit(limit)
    )
    return [EndpointOverview(*row) for row in await session.execute(query)]
