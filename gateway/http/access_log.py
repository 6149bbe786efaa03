"""One log line and one measurement per request, after its response has ended.

Lines are gathered for a moment and written together. One made and written by itself costs a request
as much as its key, its checks and its limits together: all of logging's code, cold, and a system
call. A few at once cost a tenth. A process that is killed loses what it gathered in its last
`GATHER_S`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from prometheus_client import Counter, Histogram
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from gateway.observability.metrics import Metrics
from service import log_lines, tracing

GATHER_S: Final = 0.05

# The client's own words, logged to find its reports again; never used (rows T-06, T-08).
_CLIENT_WORDS = {
    b"x-request-id": "client_request_id",
    b"x-client-request-id": "client_request_id",
    b"x-stainless-retry-count": "retry_count",
}
_MAX_WORD_CHARS = 64

logger = logging.getLogger("gateway.access")


def route_of(scope: Scope) -> str:
    """The label of a request's route: its template without `/v1`, below where it is mounted."""
    # Set by a mount alone: what a server was told to put before every path is not part of it.
    mounted = scope["root_path"].removeprefix(scope.get("app_root_path", scope["root_path"]))
    if isinstance(scope.get("endpoint"), StaticFiles):
        return str(mounted)  # one label for all files
    path = getattr(scope.get("route"), "path", None)
    return "unmatched" if path is None else f"{mounted}{path.removeprefix('/v1')}"


class AccessLines:
    """Lines not written yet. Invariant: while there is one, a call of `write` is due."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, dict[str, Any]]] = []

    def add(self, line: dict[str, Any]) -> None:
        """Note a line; it is stamped with this instant."""
        if not self._lines:
            asyncio.get_running_loop().call_later(GATHER_S, self.write)
        self._lines.append((time.time_ns(), line))

    def write(self) -> None:
        """Log what was noted, in order."""
        lines, self._lines = self._lines, []
        with log_lines.together():
            for at_ns, line in lines:
                record = logger.makeRecord(logger.name, logging.INFO, "", 0, "request", (), None)
                record.fields = line
                record.created, record.msecs = at_ns / 1e9, at_ns // 1_000_000 % 1000
                logger.handle(record)


class AccessLog:
    """Logs JSON: id, key, method, path, status, duration. Never headers, bodies or queries."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._lines = AccessLines()

    def note(self, scope: Scope, status: int) -> None:
        took_s = time.perf_counter() - scope["state"]["started_at"]
        requests, seconds = self._series_of(scope["method"], route_of(scope), status)
        requests.inc()
        seconds.observe(took_s)
        if not logger.isEnabledFor(logging.INFO):
            return
        line: dict[str, Any] = {
            "request_id": scope["state"]["request_id"],
            "key_id": scope["state"].get("key_id"),
            "method": scope["method"],
            "path": scope["path"][:256],
            "status": status,
            "took_ms": round(took_s * 1000, 1),
        }
        for name, value in scope["headers"]:
            if name in _CLIENT_WORDS:
                line[_CLIENT_WORDS[name]] = value[:_MAX_WORD_CHARS].decode("latin-1")
        line.update(tracing.ids())
        self._lines.add(line)

    def write(self) -> None:
        """Write what is still gathered."""
        self._lines.write()

    def _series_of(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        """As many as there are series in the registry: looking them up there is dearer."""
        known = self._series.get((method, route, status))
        if known is None:
            known = self._series[method, route, status] = (
                self._metrics.http_requests.labels(method, route, str(status)),
                self._metrics.http_seconds.labels(route),
            )
        return known
