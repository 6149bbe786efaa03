"""uvicorn with guarded connections: how the gateway's app is put behind a port."""

from __future__ import annotations

import asyncio
import math
import resource
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway.http.connection import ConnectionLimits, guarded, sweep
from gateway.http.per_address_limits import ConnectionCount, TrustedProxies
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings

IDLE_CONNECTION_S = 75
_TICKS_PER_SECOND = 10
_SPARE_FILES = 512
"""Descriptors for everything that is no client's connection: engine, database, files."""


class GatewayServer(uvicorn.Server):
    """A server of one app; says on `app.state.stopping` when its end has come.

    Args:
        app: The app.
        settings: Its settings.
        beat: Called each second, for who wants to know that its loop runs.
    """

    def __init__(
        self, app: FastAPI, settings: GatewaySettings, beat: Callable[[], None] | None = None
    ) -> None:
        super().__init__(_config(app, settings))
        self._app = app
        self._beat = beat
        self._delay_s = settings.shutdown_delay_s
        self._exit_at_s = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come: `/readyz` says so from now on, and the dashboard's streams end by it.

        The port stays open for the delay, so that who still comes is served; then what runs has
        its grace. A second signal ends the delay, a second SIGINT the grace too.

        uvicorn's own would note the signal and raise it again after the last request: an orderly
        end would leave status -15, which supervisors take for a fault.
        """
        again = bool(getattr(self._app.state, "stopping", False))
        self._app.state.stopping = True
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self._exit_at_s = time.monotonic() + self._delay_s
        if again or not self._delay_s:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if time.monotonic() >= self._exit_at_s:
            self.should_exit = True
        if counter % _TICKS_PER_SECOND == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
            if self._beat is not None:
                self._beat()
        return await super().on_tick(counter)


class Forwarded:
    """The app; where a header says for whom the sender stands, uvicorn sees whether to believe it.

    uvicorn's own place for this weighs the sender's address before it looks for such a header.
    """

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app = app
        trusted = [str(network) for network in proxies.networks]
        # The same protocol, which uvicorn and starlette each have types of their own for.
        weighed = ProxyHeadersMiddleware(cast("Any", app), trusted)
        self._weighed = cast("ASGIApp", weighed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        forwarded = scope["type"] == "http" and any(
            name.startswith(b"x-forwarded-") for name, _ in scope["headers"]
        )
        await (self._weighed if forwarded else self._app)(scope, receive, send)


def _config(app: FastAPI, settings: GatewaySettings) -> uvicorn.Config:
    metrics: Metrics = app.state.metrics
    limits = ConnectionLimits(
        head_s=settings.head_timeout_s,
        body_s=settings.body_timeout_s,
        write_s=settings.write_timeout_s,
        max_connections=settings.max_connections,
        per_address=ConnectionCount(settings.max_connections_per_address, settings.proxies),
        on_cut=lambda what: metrics.connections_cut.labels(what).inc(),
    )
    return uvicorn.Config(
        Forwarded(app, settings.proxies),
        host=settings.host,
        port=settings.port,
        http=guarded(limits),
        loop="uvloop",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_CONNECTION_S,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
    )


def allow_files(num_connections: int) -> None:
    """Raise this process' limit of open files to what the connections need, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections * 2 + _SPARE_FILES  # each client's call has one to its engine
    if soft < wanted:
        highest = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
