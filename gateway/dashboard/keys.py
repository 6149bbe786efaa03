"""What can be done with the keys of a project; their list is on the project's page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.errors import ApiError
from gateway.dashboard.access import Admin, CheckedForm, ManagerDep, ResourcesDep, SentOnce
from gateway.dashboard.projects import go_to_project, project_page, read_number
from gateway.tenants import keys as acts
from gateway.tenants.errors import KeyNotFound
from gateway.tenants.keys import NewKey

router = APIRouter(prefix="/projects/{project_id}/keys", dependencies=[CheckedForm])

DAY_S = 86_400


@router.post("", dependencies=[SentOnce])
async def create_key(  # noqa: PLR0913
    request: Request,
    resources: ResourcesDep,
    admin: ManagerDep,
    project_id: str,
    name: Annotated[str, Form()] = "",
    scopes: Annotated[list[str], Form()] = [],  # noqa: B006 - FastAPI copies it
    role: Annotated[str, Form()] = "",
    expires_in_days: Annotated[str, Form()] = "",
    service_tier: Annotated[str, Form()] = "",
    may_raise_tier: Annotated[bool, Form()] = False,
) -> Response:
    """Make a key and show it, this once: the page is the reply, as a redirect would lose it."""
    try:
        days = read_number(expires_in_days, "Days until it expires")
        lifetime_s = None if days is None else days * DAY_S
        tier = {"service_tier": service_tier or None, "may_raise_tier": may_raise_tier}
        wanted = NewKey(name, scopes, role or None, lifetime_s, tier)
        async with resources.database.unit_of_work() as work:
            _, text = await acts.create_key(work, admin.actor(request), project_id, wanted)
    except ApiError as refused:
        return await project_page(request, resources, admin, project_id, refused=refused)
    return await project_page(request, resources, admin, project_id, new_key=text)


@router.post("/{key_id}/revoke")
async def revoke_key(
    request: Request, resources: ResourcesDep, admin: ManagerDep, project_id: str, key_id: str
) -> Response:
    try:
        async with resources.database.unit_of_work() as work:
            await _check_place(work, admin, project_id, key_id)
            await acts.revoke_key(work, admin.actor(request), key_id)
    except ApiError as refused:
        return await project_page(request, resources, admin, project_id, refused=refused)
    return go_to_project(request, project_id)


@router.post("/{key_id}/rotate", dependencies=[SentOnce])
async def rotate_key(
    request: Request,
    resources: ResourcesDep,
    admin: ManagerDep,
    project_id: str,
    key_id: str,
    grace_hours: Annotated[str, Form()] = "24",
) -> Response:
    """Make a key in the place of another and show it, this once."""
    try:
        hours = read_number(grace_hours, "Hours that the old key goes on") or 0
        async with resources.database.unit_of_work() as work:
            await _check_place(work, admin, project_id, key_id)
            _, text = await acts.rotate_key(
                work, admin.actor(request), key_id, grace_s=hours * 3600
            )
    except ApiError as refused:
        return await project_page(request, resources, admin, project_id, refused=refused)
    return await project_page(request, resources, admin, project_id, new_key=text)


async def _check_place(work: AsyncSession, admin: Admin, project_id: str, key_id: str) -> None:
    """The key is where its address says: otherwise its page would be another project's."""
    key, _ = await acts.find_key(work, admin.organization_id, key_id)
    if key.project_id != project_id:
        raise KeyNotFound(key_id)
