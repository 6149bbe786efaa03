"""Queries about projects."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import Project
from store.types import new_id


async def create(session: AsyncSession, name: str) -> Project:
    """A new tenant."""
    project = Project(id=new_id("proj_"), name=name)
    session.add(project)
    await session.flush()
    await session.refresh(project)
    return project


async def get(session: AsyncSession, project_id: str) -> Project | None:
    """One project."""
    return await session.get(Project, project_id)


async def list_all(session: AsyncSession) -> Sequence[Project]:
    """Every project, oldest first."""
    statement = select(Project).order_by(Project.created_at, Project.id)
    return (await session.execute(statement)).scalars().all()
