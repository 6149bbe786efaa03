"""`/metrics` in Prometheus' text format (docs/metrics.md), and who may read it."""

from __future__ import annotations

import ipaddress
import secrets
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request
from starlette.datastructures import State
from starlette.responses import Response

from api.errors import AuthenticationFailed, PermissionDenied
from engine_adapter.client.pool import EnginePool
from gateway.dependencies import SettingsDep
from gateway.observability.metrics import Metrics
from service.shared_poll import SharedPoll
from store.models.file import STORES
from store.session import Database

# --- Who may read the metrics: whoever brings the token, or anybody on a loopback address.
#
# They hold no prompts, but they name models, engines' addresses and traffic.


async def may_read_metrics(
    settings: SettingsDep, authorization: Annotated[str, Header(include_in_schema=False)] = ""
) -> None:
    """With a token, whoever brings it; without one, everybody on this machine and nobody else.

    Raises:
        AuthenticationFailed: Another token than the one that is set.
        PermissionDenied: None is set, and others can reach the port.
    """
    if settings.metrics_token:
        wanted = f"Bearer {settings.metrics_token}".encode()
        if not secrets.compare_digest(authorization.encode(), wanted):
            raise AuthenticationFailed("Metrics want the token that COSERVE_METRICS_TOKEN sets.")
    elif not _is_loopback(settings.host):
        raise PermissionDenied(
            "Metrics are closed: COSERVE_METRICS_TOKEN opens them on an address that others reach."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


router = APIRouter(tags=["metrics"])

METRICS_S: Final = 0.2
"""Looks are so far apart; whoever asks in between waits for the next."""

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics")
async def get_metrics(request: Request) -> Response:
    """Everything measured; open to who can reach the port, and free of tenants' names."""
    state = request.app.state
    shared = state.polls.setdefault(
        "metrics", SharedPoll(partial(_measured, state), every_s=METRICS_S)
    )
    return Response(await shared.joined(), media_type=_MEDIA_TYPE)


async def _measured(state: State) -> bytes:
    """Everything measured, for all who ask by then."""
    metrics: Metrics = state.metrics
    engines: EnginePool = state.engines
    database: Database = state.database
    for member in engines.members:
        metrics.engine_up.labels(member.url).set(member.up)
    for store in STORES:
        metrics.storage_full.labels(store).set(store in state.storage.full)
    metrics.runtime.read(engines.members)
    await metrics.webhooks.read(database)
    await metrics.dispatch.read(database)
    await metrics.workers.read(database)
    await metrics.batches.read(database, engines)
    metrics.verdict.read(await state.verdicts.judged())
    return await metrics.gathered()
