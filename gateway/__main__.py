"""`python -m gateway`: the gateway as a process, with its settings from the environment."""

from __future__ import annotations

import math
from types import FrameType

import uvicorn
from starlette.datastructures import State

from gateway.app import create_app
from gateway.observability.logs import configure_logging
from gateway.settings import GatewaySettings

IDLE_CONNECTION_S = 75


class _Server(uvicorn.Server):
    """Says on `app.state.stopping` that the end has come: the dashboard's streams end by it."""

    def __init__(self, config: uvicorn.Config, state: State) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        self._state.stopping = True
        super().handle_exit(sig, frame)


def main() -> None:
    """Serve until SIGTERM or SIGINT; running requests get `shutdown_grace_s` to finish."""
    settings = GatewaySettings()
    configure_logging(settings.log_level)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
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
    _Server(config, app.state).run()


if __name__ == "__main__":
    main()
