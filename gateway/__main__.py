"""`python -m gateway`: the gateway as a process, with its settings from the environment."""

from __future__ import annotations

import asyncio
import sys

from batch.collector import spare_collector
from engine_adapter import tracing
from gateway.app import create_app
from gateway.observability.logs import configure_logging
from gateway.server import GatewayServer, allow_files
from gateway.settings import GatewaySettings
from store.bounded_connection import ANSWER_LIMIT_S
from store.schema import WrongDatabase, check_room, check_schema
from store.session import Database


def main() -> None:
    """Serve until SIGTERM or SIGINT; running requests get `shutdown_grace_s` to finish."""
    settings = GatewaySettings()
    configure_logging(settings.log_level, settings.log_format)
    allow_files(settings.max_connections)
    try:
        asyncio.run(_check(settings))
    except WrongDatabase as wrong:
        sys.exit(str(wrong))
    tracing.start("gateway")
    app = create_app(settings)
    app.openapi()  # a tenth of a second, which an open stream would feel: before there is any
    server = GatewayServer(app, settings)
    spare_collector()
    server.run()
    tracing.stop()


async def _check(settings: GatewaySettings) -> None:
    database = Database(
        settings.database_url, prepares=settings.database_prepares, limit_s=ANSWER_LIMIT_S
    )
    try:
        await check_schema(database)
        await check_room(database, settings.database_pool + settings.database_overflow)
    finally:
        await database.dispose()


if __name__ == "__main__":
    main()
