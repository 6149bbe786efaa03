"""Projects: their pages, and what can be done with a project."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api.errors import ApiError, InvalidRequest
from api.shared_rules import SERVED_TIERS
from gateway.auth.roles import ROLES
from gateway.auth.scopes import SCOPES
from gateway.dashboard import harvested
from gateway.dashboard.access import Admin, AdminDep, CheckedForm, ManagerDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.dashboard.resources import Resources
from gateway.dashboard.use import limited_use, use_of
from gateway.tenants import projects as acts
from store.models.key import WRITE_SCOPES
from store.repositories import key as keys
from store.repositories import project as projects
from store.repositories import statements
from store.repositories.project import Limit

router = APIRouter(prefix="/projects")

HARVEST_DAYS: Final = 30
"""Over so many days the page says what was harvested."""
LIMITS = {
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "batch_enqueued_token_limit": "Prompt tokens waiting in batches, per model",
    "concurrent_requests": "Online requests at once",
    "live_batches": "Live batches",
    "batches_per_hour": "Batches an hour",
    "stored_bytes": "Stored bytes",
    "flex_wait_seconds": "Seconds that flex waits for room",
}


@router.get("")
async def list_projects(request: Request, resources: ResourcesDep, admin: AdminDep) -> Response:
    """All projects of the organisation."""
    return await projects_page(request, resources, admin)


@router.post("", dependencies=[CheckedForm])
async def create_project(
    request: Request,
    resources: ResourcesDep,
    admin: ManagerDep,
    name: Annotated[str, Form()] = "",
) -> Response:
    """Make a project and go to its page."""
    try:
        async with resources.database.unit_of_work() as work:
            made = await acts.create_project(work, admin.actor(request), name)
    except ApiError as refused:
        return await projects_page(request, resources, admin, refused)
    return RedirectResponse(f"{request.scope['root_path']}/projects/{made.id}", 303)


@router.get("/{project_id}")
async def one_project(
    request: Request, resources: ResourcesDep, admin: AdminDep, project_id: str
) -> Response:
    """A project: its limits and keys."""
    return await project_page(request, resources, admin, project_id)


@router.post("/{project_id}", dependencies=[CheckedForm])
async def update_project(
    request: Request,
    resources: ResourcesDep,
    admin: ManagerDep,
    project_id: str,
    name: Annotated[str, Form()] = "",
) -> Response:
    """Rename a project and set the limits that the form has; an empty field is no limit."""
    form = await request.form()
    given = {column: str(form[column]) for column in LIMITS if column in form}
    try:
        limits: dict[str, Limit] = {
            column: read_number(text, LIMITS[column]) for column, text in given.items()
        }
        if "service_tier" in form:
            limits["service_tier"] = str(form["service_tier"]) or None
        async with resources.database.unit_of_work() as work:
            before = await acts.find_project(work, admin.organization_id, project_id)
            changed = {
                column: value
                for column, value in limits.items()
                if value != getattr(before, column)
            }
            await acts.update_project(
                work,
                admin.actor(request),
                project_id,
                name=name if name.strip() != before.name else None,
                limits=changed,
            )
    except ApiError as refused:
        return await project_page(request, resources, admin, project_id, refused=refused)
    return go_to_project(request, project_id)


@router.post("/{project_id}/archive", dependencies=[CheckedForm])
async def archive_project(
    request: Request, resources: ResourcesDep, admin: ManagerDep, project_id: str
) -> Response:
    """Archive a project: its keys stop working, and nothing new starts in it."""
    try:
        async with resources.database.unit_of_work() as work:
            await acts.archive_project(work, admin.actor(request), project_id)
    except ApiError as refused:
        return await project_page(request, resources, admin, project_id, refused=refused)
    return go_to_project(request, project_id)


async def projects_page(
    request: Request, resources: Resources, admin: Admin, refused: ApiError | None = None
) -> HTMLResponse:
    """The list; with `refused`, why the last change was refused."""
    async with resources.database.unit_of_work() as work:
        found = await projects.page(work, admin.organization_id, include_archived=True)
        usable = await keys.page(work, admin.organization_id)
        now = await statements.now(work)
        limited = await limited_use(work, resources, found)
    num_keys = {one.id: sum(key.project_id == one.id for key, _ in usable) for one in found}
    return page(
        request,
        resources,
        admin.session,
        "projects.html",
        admin=admin,
        status=refused.status if refused else 200,
        error=refused.message if refused else "",
        projects=sorted(found, key=lambda one: one.archived_at is not None),
        num_keys=num_keys,
        nearest={one.id: max(uses, key=lambda use: use.percent or 0.0) for one, uses in limited},
        now=now,
    )


async def project_page(
    request: Request,
    resources: Resources,
    admin: Admin,
    project_id: str,
    *,
    refused: ApiError | None = None,
    new_key: str = "",
) -> HTMLResponse:
    """One project; `new_key` is shown in this reply and never again."""
    async with resources.database.unit_of_work() as work:
        project = await acts.find_project(work, admin.organization_id, project_id)
        found = await keys.page(
            work, admin.organization_id, project_id=project.id, include_revoked=True
        )
        now = await statements.now(work)
        used = await use_of(work, resources, project)
    today = resources.clock.now().date()
    async with resources.readings.snapshot() as work:
        found_harvests = await harvested.by_project(
            work,
            admin.organization_id,
            await harvested.of_day(work, resources),
            since=today - timedelta(days=HARVEST_DAYS - 1),
            until=today + timedelta(days=1),
        )
    every = [key for key, _ in found]
    ended = [one for one in every if one.revoked_at or (one.expires_at and one.expires_at <= now)]
    return page(
        request,
        resources,
        admin.session,
        "project.html",
        admin=admin,
        status=refused.status if refused else 200,
        error=refused.message if refused else "",
        project=project,
        usable=[one for one in every if one not in ended],
        ended=ended,
        limits=LIMITS,
        tiers=SERVED_TIERS,
        used=used,
        harvest=found_harvests.get(project.id),
        harvest_days=HARVEST_DAYS,
        scopes=SCOPES,
        chosen_scopes=WRITE_SCOPES,
        roles=tuple(ROLES),
        new_key=new_key,
        own_key_id=admin.key.id,
        now=now,
    )


def go_to_project(request: Request, project_id: str) -> RedirectResponse:
    return RedirectResponse(f"{request.scope['root_path']}/projects/{project_id}", 303)


def read_number(text: str, what: str) -> int | None:
    """A number of a form; empty is none.

    Raises:
        InvalidRequest: It is something else.
    """
    text = text.strip().replace(",", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest(f"{what}: a whole number, or nothing.")
    return int(text)
