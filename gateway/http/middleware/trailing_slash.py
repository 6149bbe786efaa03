"""`/v1/models/` is `/v1/models`: no redirect, which clients do not follow for POST (row T-01)."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

DASHBOARD = "/admin"


class TrailingSlashMiddleware:
    """Drops one trailing slash from the path that is routed; the dashboard's root gets one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http":
            if path == DASHBOARD:
                scope = {**scope, "path": f"{DASHBOARD}/"}
            elif path.endswith("/") and path not in ("/", f"{DASHBOARD}/"):
                scope = {**scope, "path": path[:-1]}
        await self._app(scope, receive, send)
