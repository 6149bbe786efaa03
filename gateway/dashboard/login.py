"""Logging in with a key that has a role, and out again."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gateway.dashboard.access import (
    CheckedForm,
    ResourcesDep,
    SessionDep,
    clear_session,
    find_admin,
    set_session,
)
from gateway.dashboard.pages import page
from gateway.dashboard.session import MAX_AGE, DashboardSession
from gateway.tenants.actor import Action
from store.repositories import ended_session as ended_sessions
from store.repositories import key as keys

router = APIRouter()

MAX_KEY_CHARS = 256


@router.get("/login")
async def login_form(
    request: Request, resources: ResourcesDep, session: SessionDep, next: str = ""
) -> Response:
    """The login form; whoever is logged in goes on."""
    if await find_admin(resources, session) is not None:
        return RedirectResponse(safe_next(request, next), 303)
    return _form(request, resources, session, next_path=next)


@router.post("/login", dependencies=[CheckedForm])
async def log_in(
    request: Request,
    resources: ResourcesDep,
    session: SessionDep,
    key: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = "",
) -> Response:
    """Check the key and start a session."""
    address = request.client.host if request.client else ""
    now_s = resources.clock.monotonic()
    wait_s = resources.throttle.wait_s(address, now_s)
    if wait_s > 0:
        seconds = math.ceil(wait_s)
        said = f"Too many wrong keys from this address. Try again in {seconds} s."
        form = _form(request, resources, session, error=said, status=429, next_path=next)
        form.headers["retry-after"] = str(seconds)
        return form
    found = None
    given = key.strip()
    if given and len(given) <= MAX_KEY_CHARS:
        async with resources.database.unit_of_work() as work:
            found = await keys.find_by_plaintext(work, given)
    if found is None:
        resources.throttle.failed(address, now_s)
        said = "This key is not known here, or it was revoked."
        return _form(request, resources, session, error=said, status=401, next_path=next)
    if found.role is None:
        resources.throttle.failed(address, now_s)
        said = "This key may call the API, but not use the dashboard: it has no role."
        return _form(request, resources, session, error=said, status=403, next_path=next)
    resources.throttle.succeeded(address)
    # A new session, not the visitor's: a nonce known before must not be worth anything after.
    started = resources.signer.start(found.id, resources.clock.now())
    await _note_login(request, resources, started)
    response = RedirectResponse(safe_next(request, next), 303)
    set_session(request, response, resources, started)
    return response


async def _note_login(request: Request, resources: ResourcesDep, started: DashboardSession) -> None:
    admin = await find_admin(resources, started)
    if admin is None:
        return  # revoked in this very moment: the next page leads back to the form
    async with resources.database.unit_of_work() as work:
        await admin.actor(request).record(work, Action.LOGIN, admin.key.id)
        await keys.touch(work, [admin.key.id])


@router.post("/logout", dependencies=[CheckedForm])
async def log_out(request: Request, resources: ResourcesDep, session: SessionDep) -> Response:
    """End the session, wherever its cookie may be."""
    if session.logged_in:
        async with resources.database.unit_of_work() as work:
            await ended_sessions.end(work, session.ended_id, forget_after=2 * MAX_AGE)
    response = RedirectResponse(f"{request.scope['root_path']}/login", 303)
    clear_session(request, response)
    return response


def safe_next(request: Request, path: str) -> str:
    """Where to go after the login: a page of the dashboard, never another site."""
    root: str = request.scope["root_path"]
    if path.startswith(f"{root}/") and "\\" not in path and "//" not in path:
        return path
    return f"{root}/"


def _form(
    request: Request,
    resources: ResourcesDep,
    session: DashboardSession,
    *,
    error: str = "",
    status: int = 200,
    next_path: str = "",
) -> HTMLResponse:
    response = page(
        request, resources, session, "login.html", error=error, next=next_path, status=status
    )
    set_session(request, response, resources, session)
    return response
