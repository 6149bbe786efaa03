"""What routes ask for: resources of the app, and who is asking.

All are coroutines: a plain function would be called in a thread, of which all requests share some.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final, cast

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from api.json_shape import check_shape
from batch.files import FileStore
from batch.queue import Queue
from batch.webhooks.sender import Sender
from engine_adapter.client.pool import EnginePool
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.auth.roles import Permission, check_role
from gateway.auth.scopes import check_scope
from gateway.auth.usage import UsageRecorder
from gateway.limits.endpoints import EndpointRates
from gateway.limits.reached import WebhookProbeLimit
from gateway.observability.metrics import Metrics
from gateway.replica import Readings
from gateway.settings import GatewaySettings
from gateway.storage_watch import StorageWatch
from gateway.tenants.actor import Actor, api_actor
from service.asking import asks_for
from service.clock import Clock
from service.loops import Loops
from store.session import Database

MAX_VALUES: Final = 2048
"""Of a body that has a model: the largest names a thousand parts."""


async def _settings(request: Request) -> GatewaySettings:
    return cast(GatewaySettings, request.app.state.settings)


async def _database(request: Request) -> Database:
    return cast(Database, request.app.state.database)


async def _readings(request: Request) -> Readings:
    return cast(Readings, request.app.state.readings)


async def _engines(request: Request) -> EnginePool:
    return cast(EnginePool, request.app.state.engines)


async def _file_store(request: Request) -> FileStore:
    return cast(FileStore, request.app.state.file_store)


async def _queue(request: Request) -> Queue:
    return cast(Queue, request.app.state.queue)


async def _clock(request: Request) -> Clock:
    return cast(Clock, request.app.state.clock)


async def _usage(request: Request) -> UsageRecorder:
    return cast(UsageRecorder, request.app.state.usage)


async def _metrics(request: Request) -> Metrics:
    return cast(Metrics, request.app.state.metrics)


async def _storage(request: Request) -> StorageWatch:
    return cast(StorageWatch, request.app.state.storage)


async def _loops(request: Request) -> Loops:
    return cast(Loops, request.app.state.loops)


async def _sender(request: Request) -> Sender:
    return cast(Sender, request.app.state.sender)


async def _webhook_probes(request: Request) -> WebhookProbeLimit:
    return cast(WebhookProbeLimit, request.app.state.webhook_probes)


async def principal_of(request: Request) -> Principal:
    """Who asks, by the request's key; noted in the request's state for the log.

    Raises:
        AuthenticationFailed: No usable key.
        RateLimited: Too many came without one from its address.
        PermissionDenied: The key is not for this route.
    """
    keys = cast(KeyRing, request.app.state.keys)
    address = request.client.host if request.client else None
    principal = await keys.principal(request.headers, address)
    state = request.scope["state"]
    state["key_id"] = principal.key_id
    state["organization_id"] = principal.organization_id
    state["project_id"] = principal.project_id
    asks_for(principal.project_id)
    check_scope(principal, request.method, request.scope["route"].path)
    return principal


async def _counted(request: Request) -> Principal:
    """Who asks for what is no prompt, which has limits of its own (`gateway.prompts`).

    Raises:
        RateLimited: Too many requests of its project.
        InvalidRequest: Its body has more values than any of these has.
    """
    principal = await principal_of(request)
    await _check_values(request)
    rates = cast(EndpointRates, request.app.state.endpoint_rates)
    await rates.count(principal.project_id, request.scope["route"].path)
    return principal


async def _check_values(request: Request) -> None:
    """Refuse a body whose model would find a fault in each of thousands of values.

    Where a route has a model, its body was read before, and is checked after this.

    Raises:
        InvalidRequest: It has more values than any body of such a route.
    """
    route = request.scope["route"]
    if getattr(route, "body_field", None) is not None and not getattr(
        route, "counts_values", False
    ):
        check_shape(await request.body(), max_strings=MAX_VALUES, max_values=MAX_VALUES)


PrincipalDep = Annotated[Principal, Depends(_counted)]


async def _actor(request: Request, principal: PrincipalDep) -> Actor:
    return api_actor(request, principal)


ActorDep = Annotated[Actor, Depends(_actor)]
"""Whose acts a batch's timeline and the audit log name."""


def _allowed(permission: Permission) -> Callable[..., Awaitable[Principal]]:
    async def check(principal: PrincipalDep) -> Principal:
        check_role(principal.role, permission)
        return principal

    return check


async def _session(
    database: Annotated[Database, Depends(_database)],
) -> AsyncIterator[AsyncSession]:
    async with database.unit_of_work() as session:
        yield session


SettingsDep = Annotated[GatewaySettings, Depends(_settings)]
DatabaseDep = Annotated[Database, Depends(_database)]
ReadingsDep = Annotated[Readings, Depends(_readings)]
"""For lists, which may be some seconds old."""
EnginesDep = Annotated[EnginePool, Depends(_engines)]
FileStoreDep = Annotated[FileStore, Depends(_file_store)]
QueueDep = Annotated[Queue, Depends(_queue)]
ClockDep = Annotated[Clock, Depends(_clock)]
StorageDep = Annotated[StorageWatch, Depends(_storage)]
LoopsDep = Annotated[Loops, Depends(_loops)]
UsageDep = Annotated[UsageRecorder, Depends(_usage)]
MetricsDep = Annotated[Metrics, Depends(_metrics)]
SenderDep = Annotated[Sender, Depends(_sender)]
WebhookProbeLimitDep = Annotated[WebhookProbeLimit, Depends(_webhook_probes)]
ViewerDep = Annotated[Principal, Depends(_allowed(Permission.VIEW))]
ManagerDep = Annotated[Principal, Depends(_allowed(Permission.MANAGE))]
AuditorDep = Annotated[Principal, Depends(_allowed(Permission.AUDIT))]
"""A principal whose role allows it to see, to change, or to read the audit log."""
SessionDep = Annotated[AsyncSession, Depends(_session, scope="function")]
"""One transaction, committed before the response leaves."""
