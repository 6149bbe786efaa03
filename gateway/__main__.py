"""`python -m gateway`: the gateway as a process, with its settings from the environment."""

from __future__ import annotations

import math

import uvicorn

from gateway.app import create_app
from gateway.observability.logs import configure_logging
from gateway.settings import GatewaySettings

IDLE_CONNECTION_S = 75


def main() -> None:
    """Serve until SIGTERM or SIGINT; running requests get `shutdown_grace_s` to finish."""
    settings = GatewaySettings()
    configure_logging(settings.log_level)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http="httptools",
        loop="uvloop",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=IDLE_CONNECTION_S,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
    )


if __name__ == "__main__":
    main()
