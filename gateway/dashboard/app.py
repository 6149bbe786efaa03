"""The dashboard as a sub-application, to be mounted at /admin."""

from __future__ import annotations

import logging
from contextlib import suppress
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import MutableHeaders, State
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ApiError
from gateway.dashboard import (
    audit_log,
    downloads,
    engine_acts,
    events,
    keys,
    login,
    pages,
    playground,
    projects,
    row_again,
    rows,
    steering,
    submission,
    usage,
    webhook_acts,
)
from gateway.dashboard.access import LoginRequired, SentBefore, current_session, find_admin
from gateway.dashboard.fragments import SharedReadings
from gateway.dashboard.resources import Resources
from gateway.dashboard.session import SessionSigner
from gateway.dashboard.templating import STATIC
from gateway.http.error_handlers import met_while_reading

# --- Headers of every dashboard response, as a plain ASGI wrapper.


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self' data:",  # Pico's icons are data: images in its stylesheet
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers would then send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=()",
}


class SecurityHeaders:
    """Adds the headers; pages are not stored by any cache unless they say otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


logger = logging.getLogger(__name__)


class Assets(StaticFiles):
    """Static files; those asked for by version never change."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        versioned = b"v=" in scope["query_string"]
        response.headers["cache-control"] = (
            "public, max-age=31536000, immutable" if versioned else "public, max-age=300"
        )
        return response


def make_dashboard(gateway_state: State, *, secret: str | None) -> FastAPI:
    """The dashboard of a gateway.

    Args:
        gateway_state: The gateway's `app.state`; its resources are read at request time.
        secret: Signs the sessions (COSERVE_SECRET); without one they end with the process.
    """
    app = FastAPI(title="coserve dashboard", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.resources = Resources(gateway_state, SessionSigner(secret))
    app.state.readings = SharedReadings(app.state.resources)
    app.add_middleware(SecurityHeaders)
    app.mount("/static", Assets(directory=STATIC), name="static")
    parts = (
        login,
        pages,
        playground,
        events,
        submission,
        steering,
        downloads,
        rows,
        row_again,
        projects,
        keys,
        webhook_acts,
        engine_acts,
    )
    for module in (*parts, usage, audit_log):
        app.include_router(module.router)
    app.add_exception_handler(LoginRequired, _to_login)
    app.add_exception_handler(SentBefore, _to_its_page)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(SQLAlchemyError, _refused)
    app.add_exception_handler(Exception, _refused)
    return app


async def _to_login(request: Request, _error: Exception) -> Response:
    """Pages lead to the login form; streams and scripts get a plain 401."""
    root: str = request.scope["root_path"]
    if request.method != "GET":
        return RedirectResponse(f"{root}/login", 303)
    if request.headers.get("hx-request") == "true" or request.url.path.endswith("/events"):
        return Response(status_code=401)
    query = urlencode({"next": request.url.path})
    return RedirectResponse(f"{root}/login?{query}", 303)


async def _to_its_page(request: Request, _error: Exception) -> Response:
    """A form of `/projects/…/keys` or `/webhooks/…` belongs to the page whose path begins so."""
    root: str = request.scope["root_path"]
    path = request.url.path.removeprefix(root)
    page_of = path.partition("/keys")[0] if path.startswith("/projects/") else "/webhooks"
    return RedirectResponse(f"{root}{page_of}", 303)


async def _refused(request: Request, error: Exception) -> Response:
    """Whatever went wrong, as a page."""
    status, said = 400, "The address of this page is not complete."
    if isinstance(error, HTTPException):
        error = met_while_reading(error)
    if isinstance(error, ApiError):
        status, said = error.status, error.message
    elif isinstance(error, SQLAlchemyError):
        logger.error("database error on %s", request.url.path, exc_info=error)
        status, said = 503, "The database does not answer. Try again in a moment."
    elif not isinstance(error, HTTPException | RequestValidationError):
        logger.error("unexpected error on %s", request.url.path, exc_info=error)
        status, said = 500, "This page could not be made. The log of the gateway says why."
    elif isinstance(error, HTTPException):
        status = error.status_code
        said = "There is no such page." if status == 404 else str(error.detail)
    resources: Resources = request.app.state.resources
    session = await current_session(request, resources)
    admin = None
    if status != 401 and not isinstance(error, SQLAlchemyError):
        with suppress(SQLAlchemyError, OSError):
            admin = await find_admin(resources, session)
    response: HTMLResponse = pages.page(
        request, resources, session, "error.html", status=status, said=said, admin=admin
    )
    return response
