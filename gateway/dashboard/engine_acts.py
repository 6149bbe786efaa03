"""What an operator can do with an engine: name it, set its level, profile it, drain it, use it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from api.errors import Conflict, InvalidRequest, NotFound
from batch.queue import DISPATCH
from engine_adapter.scheduling.policies.settings import Level
from gateway.dashboard.access import CheckedForm, ManagerDep, ResourcesDep
from gateway.tenants.actor import Action
from store.repositories import engine as engines

router = APIRouter(prefix="/engines", dependencies=[CheckedForm])


@router.post("/drain")
async def drain_engine(
    request: Request, resources: ResourcesDep, admin: ManagerDep, url: Annotated[str, Form()]
) -> Response:
    """Send nothing new there; what runs may finish."""
    async with resources.database.unit_of_work() as work:
        if not await engines.drain(work, url):
            raise NotFound("There is no such engine.")
        await admin.actor(request).record(work, Action.ENGINE_DRAINED, url)
    return RedirectResponse(f"{request.scope['root_path']}/engines", 303)


@router.post("/name")
async def name_engine(
    request: Request,
    resources: ResourcesDep,
    admin: ManagerDep,
    url: Annotated[str, Form()],
    name: Annotated[str, Form()] = "",
) -> Response:
    """Call it something; an empty name calls it by its address again."""
    name = name.strip()
    if not engines.is_name(name):
        raise InvalidRequest(f"A name has up to {engines.MAX_NAME_CHARS} printable characters.")
    async with resources.database.unit_of_work() as work:
        if not await engines.name(work, url, name):
            raise NotFound("There is no such engine.")
        await admin.actor(request).record(
            work, Action.ENGINE_NAMED, url, detail={"changes_requested": {"name": name}}
        )
    return RedirectResponse(f"{request.scope['root_path']}/engines", 303)


@router.post("/level")
async def set_level(
    request: Request,
    resources: ResourcesDep,
    admin: ManagerDep,
    url: Annotated[str, Form()],
    level: Annotated[Level, Form()],
) -> Response:
    """Have it plan at another level from its next step on."""
    async with resources.database.unit_of_work() as work:
        if not await engines.set_level(work, url, level):
            raise NotFound("There is no such engine.")
        await admin.actor(request).record(
            work, Action.ENGINE_LEVEL_SET, url, detail={"changes_requested": {"level": level}}
        )
    return RedirectResponse(f"{request.scope['root_path']}/engines", 303)


@router.post("/profile")
async def profile_engine(
    request: Request, resources: ResourcesDep, admin: ManagerDep, url: Annotated[str, Form()]
) -> Response:
    """Have it measure how long its steps take once more, beside its work.

    Raises:
        NotFound: There is no such engine.
        Conflict: It has no profile, or measures one already.
        EngineUnavailable: It does not answer.
    """
    client = next((one for one in resources.engines if one.url == url), None)
    if client is None:
        raise NotFound("There is no such engine.")
    if not await client.profile_anew():
        raise Conflict("This engine has no profile, or measures one already.")
    async with resources.database.unit_of_work() as work:
        await admin.actor(request).record(work, Action.ENGINE_PROFILED, url)
    return RedirectResponse(f"{request.scope['root_path']}/engines", 303)


@router.post("/resume")
async def resume_engine(
    request: Request, resources: ResourcesDep, admin: ManagerDep, url: Annotated[str, Form()]
) -> Response:
    """Use it again; batch rows go there at once."""
    async with resources.database.unit_of_work() as work:
        if not await engines.resume(work, url):
            raise NotFound("There is no such engine.")
        await admin.actor(request).record(work, Action.ENGINE_RESUMED, url)
    await resources.queue.wake(DISPATCH)
    return RedirectResponse(f"{request.scope['root_path']}/engines", 303)
