"""`python -m gateway`: the gateway as a process, with its settings from the environment."""

from __future__ import annotations

from batch.collector import spare_collector
from gateway.app import create_app
from gateway.observability.logs import configure_logging
from gateway.server import GatewayServer, allow_files
from gateway.settings import GatewaySettings


def main() -> None:
    """Serve until SIGTERM or SIGINT; running requests get `shutdown_grace_s` to finish."""
    settings = GatewaySettings()
    configure_logging(settings.log_level)
    allow_files(settings.max_connections)
    server = GatewayServer(create_app(settings), settings)
    spare_collector()
    server.run()


if __name__ == "__main__":
    main()
