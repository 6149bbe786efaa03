"""Queries about projects, inside one organisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from store.models import DEFAULT_ORGANIZATION_ID, Project
from store.repositories.statements import now
from store.types import new_id

Limit = int | str | list[str] | None
"""What one of a project's limits may be."""


async def create(
    session: AsyncSession,
    name: str,
    organization_id: str = DEFAULT_ORGANIZATION_ID,
    limits: Mapping[str, Limit] | None = None,
) -> Project:
    """A new tenant; `limits` are columns of it."""
    project = Project(
        id=new_id("proj_"), organization_id=organization_id, name=name, **(limits or {})
    )
    session.add(project)
    await session.flush()
    await session.refresh(project)
    return project


async def get(
    session: AsyncSession, organization_id: str, project_id: str, *, lock: bool = False
) -> Project | None:
    """The organisation's project, if there is one of this id; locked where it will be changed."""
    statement = select(Project).where(
        Project.id == project_id, Project.organization_id == organization_id
    )
    if lock:
        statement = statement.with_for_update().execution_options(populate_existing=True)
    return (await session.execute(statement)).scalar_one_or_none()


async def find(session: AsyncSession, project_id: str) -> Project | None:
    """A project of any organisation: for the command line of the host."""
    return await session.get(Project, project_id)


async def page(
    session: AsyncSession,
    organization_id: str,
    *,
    include_archived: bool = False,
    after: Project | None = None,
    limit: int | None = None,
) -> Sequence[Project]:
    """The organisation's projects, oldest first."""
    statement = select(Project).where(Project.organization_id == organization_id)
    if not include_archived:
        statement = statement.where(Project.archived_at.is_(None))
    if after is not None:
        statement = statement.where(
            tuple_(Project.created_at, Project.id) > (after.created_at, after.id)
        )
    statement = statement.order_by(Project.created_at, Project.id).limit(limit)
    return (await session.execute(statement)).scalars().all()


async def archive(session: AsyncSession, project: Project) -> None:
    """Close a project: from now on its keys open nothing."""
    project.archived_at = await now(session)
    await session.flush()
