"""Who may see and do what: the session of a request, the key behind it, and the CSRF check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from engine_adapter.wire.errors import PermissionDenied
from gateway.dashboard.resources import Resources
from gateway.dashboard.session import COOKIE_NAME, MAX_AGE, DashboardSession
from store.models import ApiKey
from store.repositories import key as keys

CSRF_FIELD = "csrf_token"
CSRF_HEADER = "x-csrf-token"


class LoginRequired(Exception):
    """Nobody is logged in, or the key behind the session is not good any more."""


class CsrfRefused(PermissionDenied):
    """The form was not made by a page of this session."""

    default_code = "csrf_refused"

    def __init__(self) -> None:
        super().__init__("This form is out of date. Go back, reload the page and send it again.")


@dataclass(frozen=True)
class Admin:
    """Someone logged in: the session and the key behind it."""

    session: DashboardSession
    key: ApiKey


def resources_of(request: Request) -> Resources:
    """The dashboard's resources."""
    resources: Resources = request.app.state.resources
    return resources


ResourcesDep = Annotated[Resources, Depends(resources_of)]


def current_session(request: Request, resources: ResourcesDep) -> DashboardSession:
    """The session of the cookie; a new anonymous one where there is none."""
    now = resources.clock.now()
    cookie = request.cookies.get(COOKIE_NAME, "")
    return resources.signer.open(cookie, now) or resources.signer.start("", now)


SessionDep = Annotated[DashboardSession, Depends(current_session)]


async def find_admin(resources: Resources, session: DashboardSession) -> Admin | None:
    """The admin behind a session, looked up anew: a revoked key ends it."""
    if not session.logged_in:
        return None
    async with resources.database.unit_of_work() as work:
        found = await keys.find_operator(work, session.key_id)
    return Admin(session, found[0]) if found is not None else None


async def require_admin(resources: ResourcesDep, session: SessionDep) -> Admin:
    """The admin who asks.

    Raises:
        LoginRequired: There is none.
    """
    admin = await find_admin(resources, session)
    if admin is None:
        raise LoginRequired
    return admin


AdminDep = Annotated[Admin, Depends(require_admin)]


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
        field = (await request.form(max_files=0, max_fields=20)).get(CSRF_FIELD)
        token = field if isinstance(field, str) else ""
    check_token(resources, session, token)


CheckedForm = Depends(check_form)


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
    """Take the cookie away."""
    response.delete_cookie(COOKIE_NAME, path=request.scope.get("root_path") or "/")
