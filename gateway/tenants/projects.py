"""Acts on organisations and projects."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import may_be_id
from api.errors import Conflict
from gateway.tenants.actor import Action, Actor
from gateway.tenants.checks import check_limits, check_name
from gateway.tenants.errors import ProjectNotFound
from store.models import DEFAULT_PROJECT_ID, Organization, Project
from store.repositories import organization as organizations
from store.repositories import project as projects
from store.repositories.project import Limit


async def create_organization(session: AsyncSession, actor_name: str, name: str) -> Organization:
    """A new organisation. Only the host's own command line can do this: it owns all of them.

    Raises:
        InvalidRequest: The name.
    """
    made = await organizations.create(session, check_name(name))
    actor = Actor(made.id, "cli", actor_name)
    await actor.record(
        session, Action.ORGANIZATION_CREATED, made.id, detail={"data": {"name": made.name}}
    )
    return made


async def create_project(
    session: AsyncSession,
    actor: Actor,
    name: str,
    limits: Mapping[str, Limit] | None = None,
) -> Project:
    """A new project of the actor's organisation.

    Raises:
        InvalidRequest: The name or a limit.
    """
    check_limits(limits or {})
    made = await projects.create(session, check_name(name), actor.organization_id, limits)
    await actor.record(
        session,
        Action.PROJECT_CREATED,
        made.id,
        project_id=made.id,
        detail={"data": {"name": made.name, **_given(limits or {})}},
    )
    return made


async def update_project(
    session: AsyncSession,
    actor: Actor,
    project_id: str,
    *,
    name: str | None = None,
    limits: Mapping[str, Limit] | None = None,
) -> Project:
    """Rename a project or change limits; what is not given stays as it is.

    Raises:
        ProjectNotFound: No such project in the organisation.
        InvalidRequest: The name or a limit.
        Conflict: It is archived.
    """
    limits = limits or {}
    check_limits(limits)
    project = await find_project(session, actor.organization_id, project_id, lock=True)
    if project.archived_at is not None:
        raise Conflict("An archived project cannot be changed.", current="archived")
    changes: dict[str, str | Limit] = dict(limits)
    if name is not None:
        changes["name"] = check_name(name)
    for column, value in changes.items():
        setattr(project, column, value)
    await session.flush()
    if changes:
        await actor.record(
            session,
            Action.PROJECT_UPDATED,
            project.id,
            project_id=project.id,
            detail={"changes_requested": changes},
        )
    return project


async def archive_project(session: AsyncSession, actor: Actor, project_id: str) -> Project:
    """Close a project for good: its keys open nothing within seconds; what it owns stays.

    Archiving again changes nothing.

    Raises:
        ProjectNotFound: No such project in the organisation.
        Conflict: It is the default one, or the one of the key that asks.
    """
    project = await find_project(session, actor.organization_id, project_id, lock=True)
    if project.archived_at is not None:
        return project
    if project.id == DEFAULT_PROJECT_ID:
        raise Conflict("The default project cannot be archived: the host's own key is in it.")
    if project.id == actor.project_id:
        raise Conflict("This is the project of the key that you use.")
    await projects.archive(session, project)
    await actor.record(session, Action.PROJECT_ARCHIVED, project.id, project_id=project.id)
    return project


async def find_project(
    session: AsyncSession,
    organization_id: str,
    project_id: str,
    *,
    lock: bool = False,
    param: str = "project_id",
) -> Project:
    """A project of the organisation, archived ones too; `param` names it in the error.

    Raises:
        ProjectNotFound: There is none.
    """
    project = None
    if may_be_id(project_id):
        project = await projects.get(session, organization_id, project_id, lock=lock)
    if project is None:
        raise ProjectNotFound(project_id, param=param)
    return project


def _given(limits: Mapping[str, Limit]) -> dict[str, int | str | list[str]]:
    return {name: value for name, value in limits.items() if value is not None}
