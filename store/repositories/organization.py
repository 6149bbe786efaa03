"""Queries about organisations."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Organization
from store.types import new_id


async def create(session: AsyncSession, name: str) -> Organization:
    """A new organisation, without projects."""
    organization = Organization(id=new_id("org_"), name=name)
    session.add(organization)
    await session.flush()
    await session.refresh(organization)
    return organization


async def get(session: AsyncSession, organization_id: str) -> Organization | None:
    return await session.get(Organization, organization_id)


async def list_all(session: AsyncSession) -> Sequence[Organization]:
    """Every organisation, oldest first."""
    statement = select(Organization).order_by(Organization.created_at, Organization.id)
    return (await session.execute(statement)).scalars().all()
