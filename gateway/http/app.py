"""The gateway's app: routes behind the pipeline, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api import not_held
from batch.intake.dry_run import DryRuns
from gateway.dashboard.app import make_dashboard
from gateway.http.access_log import AccessLog
from gateway.http.body_limit import BodyLimits
from gateway.http.direct_route import DirectRoute
from gateway.http.error_handlers import install_error_handlers
from gateway.http.json_response import JsonResponse
from gateway.http.pipeline import Pipeline
from gateway.http.query import only_known
from gateway.lifespan import lifespan
from gateway.observability.metrics import Metrics
from gateway.prompts import flex_line
from gateway.routes import (
    batch_check,
    batch_events,
    batch_results,
    batch_steering,
    batches,
    conversations,
    engine_registration,
    files,
    health,
    metrics,
    models,
    organization_keys,
    organization_projects,
    organization_reports,
    prompts,
    stored_responses,
    uploads,
    webhook_endpoints,
)
from gateway.routes.openapi import describe
from gateway.settings import GatewaySettings
from service.loop_turns import LoopTurns

API_ROUTERS: tuple[APIRouter, ...] = (
    prompts.router,
    models.router,
    stored_responses.router,
    conversations.router,
    files.router,
    uploads.router,
    batches.router,
    batch_steering.router,
    batch_check.router,
    batch_events.router,
    batch_results.router,
    organization_projects.router,
    organization_keys.router,
    organization_reports.router,
    webhook_endpoints.router,
)
EXPOSED_HEADERS: Final = [
    "x-request-id",
    "openai-processing-ms",
    "retry-after",
    "retry-after-ms",
    *(
        f"x-ratelimit-{what}-{kind}"
        for what in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    ),
    "x-next-offset",
    "x-complete",
    "x-batch-status",
    not_held.HEADER,
    flex_line.PLACE,
    flex_line.EXPECTED,
]
"""What pages of other origins may read."""

PLAIN_ROUTERS: tuple[APIRouter, ...] = (health.router, engine_registration.router)


class Gateway(FastAPI):
    """FastAPI behind our own pipeline alone.

    What the framework puts around the routes, and ours does too or nobody wants, is left out: a
    last resort for errors, telemetry, a limit of bodies.

    Args:
        bodies: Limits of bodies.
        log: Where requests are noted.
        origins: Whose pages may call.
        options: FastAPI's.
    """

    def __init__(
        self, bodies: BodyLimits, log: AccessLog, origins: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.bodies = bodies
        self._log = log
        self.state.loop_turns = LoopTurns()
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: straight to the pipeline, which two classes of the framework would do by turns."""
        scope["app"] = self
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Once, before the first request."""
        cors = {
            "allow_origins": self._origins,
            "allow_methods": ["GET", "POST", "DELETE"],
            "allow_headers": ["*"],
            "expose_headers": EXPOSED_HEADERS,
        }
        routes = AsyncExitStackMiddleware(self.router)
        return Pipeline(
            routes, self.exception_handlers, self.bodies, self._log, cors, self.state.loop_turns
        )


def create_app(settings: GatewaySettings | None = None) -> FastAPI:
    """The app; it connects to nothing before its lifespan begins."""
    settings = settings or GatewaySettings()
    measured = Metrics(settings.home)
    hot = _prompt_routes()
    app = Gateway(
        BodyLimits(
            settings.body_limit_bytes,
            settings.body_memory_bytes,
            {route.path for route in hot},
        ),
        AccessLog(measured),
        settings.origins,
        title="coserve",
        version=version("coserve"),
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonResponse,
        # None of it is offered, and asking whether it is wanted costs every request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings = settings
    app.state.metrics = measured
    app.state.dry_runs = DryRuns()
    install_error_handlers(app)
    app.router.routes += hot
    checked = [Depends(only_known)]
    for router in API_ROUTERS[1:]:
        app.include_router(router, prefix="/v1", dependencies=checked)
        # Clients whose base URL lacks /v1 (row T-01).
        app.include_router(router, include_in_schema=False, dependencies=checked)
    for router in PLAIN_ROUTERS:
        app.include_router(router)
    app.include_router(metrics.router, dependencies=[Depends(metrics.may_read_metrics)])
    describe(app)
    app.mount("/admin", make_dashboard(app.state, secret=settings.secret or None))
    return app


def _prompt_routes() -> list[DirectRoute]:
    """The hot routes, first of all and not through an included router, which matches twice."""
    return [
        DirectRoute(
            prefix + route.path,
            route.endpoint,
            methods=route.methods,
            tags=route.tags,
            openapi_extra=route.openapi_extra,
            include_in_schema=bool(prefix),
        )
        for route in prompts.router.routes
        if isinstance(route, DirectRoute)
        for prefix in ("/v1", "")
    ]
