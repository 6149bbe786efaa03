"""Who may see and do what: the session of a request, the key behind it, and the CSRF check."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from api.errors import PermissionDenied
from gateway.auth.roles import Permission, check_role
from gateway.dashboard.resources import Resources
from gateway.dashboard.session import COOKIE_NAME, MAX_AGE, DashboardSession
from gateway.tenants.actor import Actor, address_of
from store.models import ApiKey, Project
from store.repositories import ended_session as ended_sessions
from store.repositories import key as keys

CSRF_FIELD = "csrf_token"
CSRF_HEADER = "x-csrf-token"
ONCE_FIELD = "once"


class LoginRequired(Exception):
    """Nobody is logged in, or the key behind the session is not good any more."""


class SentBefore(Exception):
    """A form that may be sent once was sent again, by a reload of its reply."""


class CsrfRefused(PermissionDenied):
    """The form was not made by a page of this session."""

    default_code = "csrf_refused"

    def __init__(self) -> None:
        super().__init__("This form is out of date. Go back, reload the page and send it again.")


@dataclass(frozen=True)
class Admin:
    """Someone logged in: the session, the key behind it, and the key's project.

    What is seen and done is that organisation's, as far as the key's role goes.
    """

    session: DashboardSession
    key: ApiKey
    project: Project

    @property
    def organization_id(self) -> str:
        """Whose batches, projects and keys."""
        return self.project.organization_id

    def actor(self, request: Request) -> Actor:
        """Who it is in the audit log."""
        return Actor(
            organization_id=self.organization_id,
            source="dashboard",
            name=self.key.name,
            key_id=self.key.id,
            project_id=self.project.id,
            address=address_of(request),
            request_id=request.scope.get("state", {}).get("request_id"),
        )


async def resources_of(request: Request) -> Resources:
    resources: Resources = request.app.state.resources
    return resources


ResourcesDep = Annotated[Resources, Depends(resources_of)]


async def current_session(request: Request, resources: ResourcesDep) -> DashboardSession:
    """The session of the cookie; a new anonymous one where there is none."""
    now = resources.clock.now()
    cookie = request.cookies.get(COOKIE_NAME, "")
    return resources.signer.open(cookie, now) or resources.signer.start("", now)


SessionDep = Annotated[DashboardSession, Depends(current_session)]


async def find_admin(resources: Resources, session: DashboardSession) -> Admin | None:
    """The admin behind a session, looked up anew: a revoked key ends it, and so does a logout."""
    if not session.logged_in:
        return None
    async with resources.database.unit_of_work() as work:
        if await ended_sessions.has_ended(work, session.ended_id):
            return None
        found = await keys.find_operator(work, session.key_id)
    return Admin(session, *found) if found is not None else None


async def require_admin(request: Request, resources: ResourcesDep, session: SessionDep) -> Admin:
    """Whoever asks; a form wants at least the right to operate, a page that to view.

    Raises:
        LoginRequired: Nobody is logged in.
        PermissionDenied: The role does not allow it.
        RateLimited: There were too many requests within a minute.
    """
    admin = await find_admin(resources, session)
    if admin is None:
        raise LoginRequired
    await resources.endpoint_rates.count(admin.project.id, "admin")
    reads = request.method in ("GET", "HEAD")
    check_role(admin.key.role, Permission.VIEW if reads else Permission.OPERATE)
    return admin


AdminDep = Annotated[Admin, Depends(require_admin)]


def _allowed(permission: Permission) -> Callable[..., Awaitable[Admin]]:
    async def check(admin: AdminDep) -> Admin:
        check_role(admin.key.role, permission)
        return admin

    return check


OperatorDep = Annotated[Admin, Depends(_allowed(Permission.OPERATE))]
ManagerDep = Annotated[Admin, Depends(_allowed(Permission.MANAGE))]
AuditorDep = Annotated[Admin, Depends(_allowed(Permission.AUDIT))]
"""Whoever asks, if the role allows operating, managing, or reading the audit log."""


def check_origin(request: Request) -> None:
    """Refuse what another site sent; browsers that name no origin are judged by the token alone.

    Raises:
        CsrfRefused: The request comes from elsewhere.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise CsrfRefused
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise CsrfRefused


def check_token(resources: Resources, session: DashboardSession, token: str) -> None:
    """Refuse a form of another session.

    Raises:
        CsrfRefused: The token is missing or wrong.
    """
    if not resources.signer.csrf_matches(session, token):
        raise CsrfRefused


async def check_form(request: Request, resources: ResourcesDep, session: SessionDep) -> None:
    """The CSRF check of a small form: origin first, then the token in header or field."""
    check_origin(request)
    token = request.headers.get(CSRF_HEADER)
    if token is None:
        field = (await request.form(max_files=0, max_fields=250)).get(CSRF_FIELD)
        token = field if isinstance(field, str) else ""
    check_token(resources, session, token)


CheckedForm = Depends(check_form)


async def check_once(request: Request, resources: ResourcesDep, session: SessionDep) -> None:
    """Let a form through the first time only: a reply that shows a secret is no page to reload.

    Raises:
        SentBefore: The form was sent before.
    """
    once = (await request.form(max_files=0, max_fields=250)).get(ONCE_FIELD)
    if not isinstance(once, str) or not once:
        return
    form_id = hashlib.sha256(f"{session.nonce}|{once}".encode()).hexdigest()
    async with resources.database.unit_of_work() as work:
        if not await ended_sessions.is_first(work, form_id, forget_after=MAX_AGE):
            raise SentBefore


SentOnce = Depends(check_once)


def set_session(
    request: Request, response: Response, resources: Resources, session: DashboardSession
) -> None:
    """Put the session into the cookie: unreadable for scripts, sent to these pages only."""
    response.set_cookie(
        COOKIE_NAME,
        resources.signer.seal(session),
        max_age=int(MAX_AGE.total_seconds()),
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def clear_session(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE_NAME, path=request.scope.get("root_path") or "/")
