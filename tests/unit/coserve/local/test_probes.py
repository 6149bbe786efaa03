"""Seeing from outside whether something listens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from coserve.local.probes import Reply, answers_200, http_get, missing_parts, why_port_unusable


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ok" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


async def test_only_200_is_ready(server: str) -> None:
    assert await answers_200(f"{server}/ok")()
    assert not await answers_200(f"{server}/bad")()
    assert http_get(f"{server}/bad") == Reply(503, b"")


def test_nobody_there_is_not_an_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert http_get(f"http://127.0.0.1:{probe.getsockname()[1]}/") is None


def test_a_taken_port_names_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port}" in (why := why_port_unusable("127.0.0.1", port) or "")
        assert "COSERVE_PORT" in why
    assert why_port_unusable("127.0.0.1", port) is None


def test_a_foreign_address_names_the_setting() -> None:
    assert "COSERVE_HOST" in (why_port_unusable("203.0.113.7", 0) or "")
    assert "COSERVE_HOST" in (why_port_unusable("no such host", 0) or "")


def test_what_is_missing_is_said_in_words() -> None:
    body = b"""{"status": "no", "parts": {"database": {"ok": true, "why": null},
               "engine": {"ok": false, "why": "connection refused"}}}"""
    assert missing_parts(Reply(503, body)) == "engine: connection refused"
    assert missing_parts(Reply(503, b"<html>")) == "it says 503"
    assert missing_parts(None) == "the gateway does not answer"
