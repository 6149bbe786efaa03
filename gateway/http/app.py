"""The gateway's app: routes, middleware and error handlers put together."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from batch.intake.dry_run import DryRuns
from gateway.dashboard.app import make_dashboard
from gateway.http.direct_route import DirectRoute
from gateway.http.error_handlers import install_error_handlers
from gateway.http.json_response import JsonResponse
from gateway.http.middleware.access_log import AccessLog, AccessLogMiddleware
from gateway.http.middleware.body_limit import BodyLimitMiddleware, BodyLimits
from gateway.http.middleware.boundary import BoundaryMiddleware
from gateway.http.middleware.request_id import RequestIdMiddleware
from gateway.http.middleware.tracing import TracingMiddleware
from gateway.http.middleware.trailing_slash import TrailingSlashMiddleware
from gateway.http.prompt_door import PromptDoor
from gateway.http.query import only_known
from gateway.lifespan import lifespan
from gateway.metrics_access import may_read_metrics
from gateway.observability.metrics import Metrics
from gateway.prompts.prompt import NOT_HELD_HEADER
from gateway.routes import (
    batch_check,
    batch_events,
    batch_results,
    batch_steering,
    batches,
    chat,
    completions,
    conversations,
    embeddings,
    engine_registration,
    files,
    health,
    metrics,
    models,
    organization_audit,
    organization_keys,
    organization_projects,
    organization_usage,
    responses,
    stored_responses,
    uploads,
    webhook_endpoints,
)
from gateway.routes.openapi import describe
from gateway.settings import GatewaySettings
from service import tracing

PROMPT_ROUTERS: tuple[APIRouter, ...] = (
    chat.router,
    completions.router,
    embeddings.router,
    responses.router,
)
API_ROUTERS: tuple[APIRouter, ...] = (
    *PROMPT_ROUTERS,
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
    organization_audit.router,
    organization_usage.router,
    webhook_endpoints.router,
)
PLAIN_ROUTERS: tuple[APIRouter, ...] = (health.router, engine_registration.router)


class Gateway(FastAPI):
    """FastAPI behind our own middleware alone.

    What the framework puts around it, a last resort for errors, telemetry and a limit of bodies,
    is `BoundaryMiddleware`'s work, not wanted, and `BodyLimitMiddleware`'s.
    """

    prompt_door: PromptDoor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: prompts go by a door of their own."""
        if self.prompt_door.is_for(scope):
            await self.prompt_door(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """From the inside to the outside, once, before the first request."""
        app: ASGIApp = AsyncExitStackMiddleware(self.router)
        app = ExceptionMiddleware(app, handlers=self.exception_handlers, debug=False)
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app


def create_app(settings: GatewaySettings | None = None) -> FastAPI:
    """The app; it connects to nothing before its lifespan begins."""
    settings = settings or GatewaySettings()
    app = Gateway(
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
    app.state.metrics = Metrics(settings.home)
    app.state.dry_runs = DryRuns()
    install_error_handlers(app)
    prompts = _prompt_routes()
    app.router.routes += prompts
    checked = [Depends(only_known)]
    for router in API_ROUTERS[len(PROMPT_ROUTERS) :]:
        app.include_router(router, prefix="/v1", dependencies=checked)
        # Clients whose base URL lacks /v1 (row T-01).
        app.include_router(router, include_in_schema=False, dependencies=checked)
    for router in PLAIN_ROUTERS:
        app.include_router(router)
    app.include_router(metrics.router, dependencies=[Depends(may_read_metrics)])
    describe(app)
    app.mount("/admin", make_dashboard(app.state, secret=settings.secret or None))
    bodies = BodyLimits(settings.body_limit_bytes, settings.bodies_limit_bytes)
    log = AccessLog(app.state.metrics)
    app.prompt_door = PromptDoor(app, prompts, bodies, log)
    _add_middleware(app, settings, bodies, log)
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
        for router in PROMPT_ROUTERS
        for route in router.routes
        if isinstance(route, DirectRoute)
        for prefix in ("/v1", "")
    ]


def _add_middleware(
    app: FastAPI, settings: GatewaySettings, bodies: BodyLimits, log: AccessLog
) -> None:
    """From the inside to the outside."""
    app.add_middleware(BodyLimitMiddleware, limits=bodies)
    app.add_middleware(TrailingSlashMiddleware)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=[
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
            NOT_HELD_HEADER,
        ],
    )
    app.add_middleware(BoundaryMiddleware)
    app.add_middleware(AccessLogMiddleware, log=log)
    if tracing.is_on():
        app.add_middleware(TracingMiddleware)
    app.add_middleware(RequestIdMiddleware)
