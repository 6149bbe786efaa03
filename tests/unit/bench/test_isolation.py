"""What `make isolation` counts where nothing comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.isolation.witness import stalls_ms

LASTS_S = 0.2


class _Handler(BaseHTTPRequestHandler):
    status = 503

    def do_POST(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(params=[503, 200], ids=["refused", "cut"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"status": request.param})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_stream_that_is_refused_or_cut_is_one_gap_to_the_end(url: str) -> None:
    (gap,) = stalls_ms(url, "sk-none", LASTS_S)
    assert 0 < gap <= LASTS_S * 1000
