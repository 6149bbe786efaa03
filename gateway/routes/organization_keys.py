"""Keys of the caller's organisation: those of projects and those of operators."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_shapes import may_be_id
from gateway.dependencies import DatabaseDep, ManagerDep, ViewerDep
from gateway.http.json_route import JsonRoute
from gateway.routes.organization_projects import PageLimit
from gateway.tenants import keys as acts
from gateway.tenants.actor import api_actor
from gateway.tenants.errors import KeyNotFound
from gateway.tenants.keys import DEFAULT_GRACE_S, NewKey
from gateway.tenants.projects import find_project
from gateway.tenants.shapes import (
    AdminKeyObject,
    CreateAdminKey,
    CreateKey,
    Deleted,
    Listing,
    ProjectKeyObject,
    RotateKey,
    UpdateKey,
)
from store.models import ApiKey, Project
from store.models.key import WRITE_SCOPES
from store.repositories import key as keys

router = APIRouter(tags=["organization"], route_class=JsonRoute)

PROJECT_KEYS = "/organization/projects/{project_id}/api_keys"
ADMIN_KEYS = "/organization/admin_api_keys"


@router.get(PROJECT_KEYS)
async def list_project_keys(
    project_id: str,
    principal: ViewerDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: PageLimit = 20,
) -> Listing[ProjectKeyObject]:
    """A page of a project's keys, oldest first; revoked ones are gone."""
    organization_id = principal.organization_id
    async with database.unit_of_work() as session:
        await find_project(session, organization_id, project_id)
        found = await keys.page(
            session,
            organization_id,
            project_id=project_id,
            after=await _cursor(session, organization_id, after),
            limit=limit + 1,
        )
    return Listing[ProjectKeyObject].of([ProjectKeyObject.of(*one) for one in found], limit=limit)


@router.post(PROJECT_KEYS)
async def create_project_key(
    project_id: str,
    body: CreateKey,
    request: Request,
    principal: ManagerDep,
    database: DatabaseDep,
) -> ProjectKeyObject:
    """A new key; `value` is shown this once."""
    wanted = NewKey(
        body.name,
        WRITE_SCOPES if body.scopes is None else body.scopes,
        expires_in_s=body.expires_in_seconds,
        limits=body.coserve.given(),
    )
    async with database.unit_of_work() as session:
        key, value = await acts.create_key(
            session, api_actor(request, principal), project_id, wanted
        )
        project = await find_project(session, principal.organization_id, project_id)
        return ProjectKeyObject.of(key, project, value)


@router.get(PROJECT_KEYS + "/{key_id}")
async def get_project_key(
    project_id: str, key_id: str, principal: ViewerDep, database: DatabaseDep
) -> ProjectKeyObject:
    """One key."""
    async with database.unit_of_work() as session:
        return ProjectKeyObject.of(
            *await _key_of(session, principal.organization_id, project_id, key_id)
        )


@router.post(PROJECT_KEYS + "/{key_id}")
async def update_project_key(
    project_id: str,
    key_id: str,
    body: UpdateKey,
    request: Request,
    principal: ManagerDep,
    database: DatabaseDep,
) -> ProjectKeyObject:
    """Change a key's scopes, expiry or limits."""
    async with database.unit_of_work() as session:
        await _key_of(session, principal.organization_id, project_id, key_id)
        changed = await acts.update_key(
            session,
            api_actor(request, principal),
            key_id,
            scopes=body.scopes,
            expires_in_s=body.expires_in_seconds,
            limits=body.coserve.given(),
        )
        return ProjectKeyObject.of(*changed)


@router.post(PROJECT_KEYS + "/{key_id}/rotate")
async def rotate_project_key(
    project_id: str,
    key_id: str,
    body: RotateKey,
    request: Request,
    principal: ManagerDep,
    database: DatabaseDep,
) -> ProjectKeyObject:
    """A new key in the place of this one, which ends after the grace. Ours, not OpenAI's."""
    grace_s = DEFAULT_GRACE_S if body.grace_seconds is None else body.grace_seconds
    async with database.unit_of_work() as session:
        _, project = await _key_of(session, principal.organization_id, project_id, key_id)
        made, value = await acts.rotate_key(
            session, api_actor(request, principal), key_id, grace_s=grace_s
        )
        return ProjectKeyObject.of(made, project, value)


@router.delete(PROJECT_KEYS + "/{key_id}")
async def delete_project_key(
    project_id: str, key_id: str, request: Request, principal: ManagerDep, database: DatabaseDep
) -> Deleted:
    """End a key."""
    async with database.unit_of_work() as session:
        await _key_of(session, principal.organization_id, project_id, key_id)
        await acts.revoke_key(session, api_actor(request, principal), key_id)
    return Deleted(id=key_id, object="organization.project.api_key.deleted")


@router.get(ADMIN_KEYS)
async def list_admin_keys(
    principal: ViewerDep,
    database: DatabaseDep,
    after: str | None = None,
    limit: PageLimit = 20,
    order: Annotated[Literal["asc", "desc"], Query()] = "asc",
) -> Listing[AdminKeyObject]:
    """A page of the operators' keys."""
    organization_id = principal.organization_id
    async with database.unit_of_work() as session:
        found = await keys.page(
            session,
            organization_id,
            operators=True,
            newest_first=order == "desc",
            after=await _cursor(session, organization_id, after),
            limit=limit + 1,
        )
    return Listing[AdminKeyObject].of([AdminKeyObject.of(key) for key, _ in found], limit=limit)


@router.post(ADMIN_KEYS)
async def create_admin_key(
    body: CreateAdminKey, request: Request, principal: ManagerDep, database: DatabaseDep
) -> AdminKeyObject:
    """A new operator's key, in the caller's project; `value` is shown this once."""
    wanted = NewKey(body.name, (), body.role, body.expires_in_seconds)
    async with database.unit_of_work() as session:
        key, value = await acts.create_key(
            session, api_actor(request, principal), principal.project_id, wanted
        )
        return AdminKeyObject.of(key, value)


@router.get(ADMIN_KEYS + "/{key_id}")
async def get_admin_key(key_id: str, principal: ViewerDep, database: DatabaseDep) -> AdminKeyObject:
    """One operator's key."""
    async with database.unit_of_work() as session:
        return AdminKeyObject.of(await _operator(session, principal.organization_id, key_id))


@router.delete(ADMIN_KEYS + "/{key_id}")
async def delete_admin_key(
    key_id: str, request: Request, principal: ManagerDep, database: DatabaseDep
) -> Deleted:
    """End an operator's key, and the dashboard sessions made with it."""
    async with database.unit_of_work() as session:
        await _operator(session, principal.organization_id, key_id)
        await acts.revoke_key(session, api_actor(request, principal), key_id)
    return Deleted(id=key_id, object="organization.admin_api_key.deleted")


async def _key_of(
    session: AsyncSession, organization_id: str, project_id: str, key_id: str
) -> tuple[ApiKey, Project]:
    """The project's key; a key of another project is none, though of the same organisation."""
    await find_project(session, organization_id, project_id)
    key, project = await acts.find_key(session, organization_id, key_id)
    if project.id != project_id:
        raise KeyNotFound(key_id)
    return key, project


async def _operator(session: AsyncSession, organization_id: str, key_id: str) -> ApiKey:
    key, _ = await acts.find_key(session, organization_id, key_id)
    if key.role is None:
        raise KeyNotFound(key_id)
    return key


async def _cursor(session: AsyncSession, organization_id: str, after: str | None) -> ApiKey | None:
    """The key that a page begins after; revoked ones too, so that paging survives a revocation."""
    if after is None:
        return None
    found = await keys.get(session, organization_id, after) if may_be_id(after) else None
    if found is None:
        raise KeyNotFound(after, param="after")
    return found[0]
