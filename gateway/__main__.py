"""`python -m gateway`: the gateway as a process, with its settings from the environment."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from functools import partial

from gateway.http.app import create_app
from gateway.http.processes import Process, serve_in_processes, share_of
from gateway.http.server import GatewayServer, allow_files
from gateway.observability.metrics import Metrics
from gateway.observability.siblings import PeerMetrics
from gateway.settings import GatewaySettings
from service import log_lines, tracing
from service.garbage import YOUNG_ALONE, freeze_gc
from store.bounded_connection import ANSWER_LIMIT_S
from store.schema import WrongDatabase, check_room, check_schema
from store.session import Database


def main() -> None:
    """Serve until SIGTERM or SIGINT; running requests get `shutdown_grace_s` to finish."""
    settings = GatewaySettings()
    _configure_logging(settings.log_level, settings.log_format)
    process = Process.of(sys.argv[1:])
    if process is not None:
        process.bind_life()
        _serve(share_of(settings), process)
        return
    try:
        asyncio.run(_check(settings))
    except WrongDatabase as wrong:
        sys.exit(str(wrong))
    if settings.gateway_processes > 1:
        sys.exit(serve_in_processes(settings))
    _serve(settings, None)


def _configure_logging(level: str, form: str) -> None:
    """Set up logging for a process that is a gateway."""
    log_lines.configure("gateway", form, level.upper())
    # Nothing that no format names is looked up (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # The access log has a line of its own.
    logging.getLogger("uvicorn.access").disabled = True


def _serve(settings: GatewaySettings, process: Process | None) -> None:
    allow_files(settings.max_connections)
    tracing.start("gateway")
    app = create_app(settings)
    sockets = None
    if process is not None:
        metrics: Metrics = app.state.metrics
        metrics.siblings = PeerMetrics(process.door, partial(metrics.of_process, process.number))
        sockets = [socket.socket(fileno=process.listener)]
    app.openapi()  # a tenth of a second, which an open stream would feel: before there is any
    server = GatewayServer(app, settings, process.beat if process is not None else None)
    freeze_gc(YOUNG_ALONE)
    server.run(sockets)
    tracing.stop()


async def _check(settings: GatewaySettings) -> None:
    database = Database(
        settings.database_url, prepares=settings.database_prepares, limit_s=ANSWER_LIMIT_S
    )
    try:
        await check_schema(database)
        each = settings.database_pool + settings.database_overflow
        await check_room(database, each * settings.gateway_processes)
    finally:
        await database.dispose()


if __name__ == "__main__":
    main()
