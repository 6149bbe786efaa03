"""`/organization/projects`: the projects of the caller's organisation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from gateway.dependencies import DatabaseDep, ManagerDep, ViewerDep
from gateway.http.json_route import JsonRoute
from gateway.tenants import projects as acts
from gateway.tenants.actor import api_actor
from gateway.tenants.shapes import CreateProject, Listing, ProjectObject, UpdateProject
from store.repositories import project as projects

router = APIRouter(tags=["organization"], prefix="/organization/projects", route_class=JsonRoute)

PageLimit = Annotated[int, Query(ge=1, le=100)]


@router.get("")
async def list_projects(
    principal: ViewerDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: PageLimit = 20,
    include_archived: bool = False,
) -> Listing[ProjectObject]:
    """A page of the organisation's projects, oldest first."""
    organization_id = principal.organization_id
    async with database.unit_of_work() as session:
        last = None
        if after is not None:
            last = await acts.find_project(session, organization_id, after, param="after")
        found = await projects.page(
            session,
            organization_id,
            include_archived=include_archived,
            after=last,
            limit=limit + 1,
        )
    return Listing[ProjectObject].of([ProjectObject.of(one) for one in found], limit=limit)


@router.post("")
async def create_project(
    body: CreateProject, request: Request, principal: ManagerDep, database: DatabaseDep
) -> ProjectObject:
    """A new project."""
    async with database.unit_of_work() as session:
        made = await acts.create_project(
            session, api_actor(request, principal), body.name, body.coserve.given()
        )
        return ProjectObject.of(made)


@router.get("/{project_id}")
async def get_project(
    project_id: str, principal: ViewerDep, database: DatabaseDep
) -> ProjectObject:
    """One project, archived ones too."""
    async with database.unit_of_work() as session:
        found = await acts.find_project(session, principal.organization_id, project_id)
        return ProjectObject.of(found)


@router.post("/{project_id}")
async def update_project(
    project_id: str,
    body: UpdateProject,
    request: Request,
    principal: ManagerDep,
    database: DatabaseDep,
) -> ProjectObject:
    """Rename a project or change its limits."""
    async with database.unit_of_work() as session:
        changed = await acts.update_project(
            session,
            api_actor(request, principal),
            project_id,
            name=body.name,
            limits=body.coserve.given(),
        )
        return ProjectObject.of(changed)


@router.post("/{project_id}/archive")
async def archive_project(
    project_id: str, request: Request, principal: ManagerDep, database: DatabaseDep
) -> ProjectObject:
    """Close a project: its keys open nothing any more."""
    async with database.unit_of_work() as session:
        closed = await acts.archive_project(session, api_actor(request, principal), project_id)
        return ProjectObject.of(closed)
