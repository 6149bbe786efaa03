"""Following a batch to its end."""

from __future__ import annotations

import io
from typing import Any

import httpx
import pytest
from rich.console import Console

from coserve.commands.batch.wait import watch
from coserve.commands.service_client import MAX_POLL_FAILURES, ServiceClient, ServiceError


def batch(status: str, completed: int = 0, failed: int = 0, total: int = 0) -> dict[str, Any]:
    counts = {"completed": completed, "failed": failed, "total": total}
    return {"id": "batch_1", "status": status, "request_counts": counts}


class Service:
    """Answers polls from a script: a batch, or None for a service that is away."""

    def __init__(self, *script: dict[str, Any] | None) -> None:
        self._script = list(script)
        self.num_polls = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/batches/batch_1"
        assert request.headers["authorization"] == "Bearer k"
        self.num_polls += 1
        now = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if now is None:
            raise httpx.ConnectError("away")
        return httpx.Response(200, json=now)

    def client(self) -> ServiceClient:
        return ServiceClient("http://service/v1", "k", transport=httpx.MockTransport(self))


def follow(service: Service, *, terminal: bool = False) -> tuple[dict[str, Any], str]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with service.client() as client:
        ended = watch(client, batch("validating"), console, sleep=lambda duration_s: None)
    return ended, out.getvalue()


def test_every_change_is_a_line_in_a_log() -> None:
    running = batch("in_progress", 1, 0, 4)
    ended = batch("completed", 3, 1, 4)
    result, shown = follow(Service(batch("validating"), running, running, None, ended))
    assert result == ended
    assert shown.splitlines() == [
        "validating: 0 completed, 0 failed of 0",
        "in_progress: 1 completed, 0 failed of 4",
        "completed: 3 completed, 1 failed of 4",
    ]


def test_an_end_that_moves_on_is_no_change() -> None:
    def running(finish_at: int, reason: str | None = None) -> dict[str, Any]:
        ours = {"predicted_finish_at": finish_at, "waiting_reason": reason, "paused": False}
        return {**batch("in_progress", 0, 0, 4), "coserve": ours}

    ended = batch("completed", 4, 0, 4)
    script = (running(60), running(120), running(180, "at_engine"), running(240, "at_engine"))
    _, shown = follow(Service(*script, ended))
    assert shown.splitlines() == [
        "validating: 0 completed, 0 failed of 0",
        "in_progress: 0 completed, 0 failed of 4; predicted end: 1970-01-01 00:01:00 UTC",
        "in_progress: 0 completed, 0 failed of 4; waiting: at_engine,"
        " predicted end: 1970-01-01 00:03:00 UTC",
        "completed: 4 completed, 0 failed of 4",
    ]


def test_a_terminal_gets_a_bar_with_counts() -> None:
    service = Service(batch("in_progress", 1, 0, 4), batch("completed", 3, 1, 4))
    _, shown = follow(service, terminal=True)
    assert "completed" in shown
    assert "4/4" in shown
    assert "1 failed" in shown


@pytest.mark.parametrize("status", ["failed", "expired", "cancelled"])
def test_other_ends(status: str) -> None:
    assert follow(Service(batch(status)))[0]["status"] == status


def test_a_service_that_stays_away_is_given_up() -> None:
    service = Service(None)
    with pytest.raises(ServiceError, match="does not answer"):
        follow(service)
    assert service.num_polls == MAX_POLL_FAILURES
