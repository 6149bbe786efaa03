"""Section 10 and what else the official client meets."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator

import orjson
import pytest
from backports import zstd

from tests.integration.contract.conftest import CHAT, MODEL, Live, error_of


def test_c_17_log_probabilities_reach_the_engine(live: Live) -> None:
    assert live.ask("hi", logprobs=True, top_logprobs=20).status_code == 200
    sent = live.engine.received[-1]
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 20)
    for more in (
        {"top_logprobs": 3},
        {"logprobs": False, "top_logprobs": 3},
        {"logprobs": True, "top_logprobs": 21},
    ):
        assert error_of(live.ask("hi", **more), 400)["param"] == "top_logprobs"


def test_l_06_log_probabilities_of_completions(live: Live) -> None:
    with live.http() as http:
        for asked, status in ((0, 200), (5, 200), (6, 400), (-1, 400)):
            body = {"model": MODEL, "prompt": "hi", "logprobs": asked}
            reply = http.post("/v1/completions", json=body)
            assert reply.status_code == status
            if status == 200:
                assert live.engine.received[-1]["logprobs"] == asked
            else:
                assert error_of(reply, 400)["param"] == "logprobs"


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstd.compress),
        ("identity", bytes),
    ],
)
def test_z_02_compression(live: Live, coding: str, pack: Callable[[bytes], bytes]) -> None:
    head = {"content-type": "application/json", "content-encoding": coding}

    def chunked(data: bytes) -> Iterator[bytes]:
        yield from (data[:10], data[10:])

    with live.http() as http:
        http.headers["accept-encoding"] = "gzip, br"
        for path, body in (
            (CHAT, live.chat("hi")),
            ("/v1/responses", {"model": MODEL, "input": "hi"}),
            ("/v1/conversations", {"metadata": {"a": "b"}}),
            ("/v1/webhook_endpoints", {"url": "https://example.com/x", "name": "n"}),
        ):
            plain = http.post(path, json=body)
            packed = pack(orjson.dumps(body))
            for content in (packed, chunked(packed)):
                reply = http.post(path, content=content, headers=head)
                assert reply.status_code == plain.status_code, reply.text
            if coding == "identity":
                continue
            for wrong in (packed[:-4], b"{}", b"x" + packed):
                error = error_of(http.post(path, content=wrong, headers=head), 400)
                assert error["code"] == "invalid_encoding"
            bomb = pack(b'{"x":"' + bytes(64 << 20) + b'"}')
            error = error_of(http.post(path, content=bomb, headers=head), 413)
            assert error["code"] == "payload_too_large"
        # What is not compressed does not say that it is.
        models = http.get("/v1/models")
        assert "content-encoding" not in models.headers
        stream = http.post(CHAT, json=live.chat("hi", stream=True))
        assert "content-encoding" not in stream.headers


def test_z_02_what_is_not_read_is_named(live: Live) -> None:
    with live.http() as http:
        for path in (CHAT, "/v1/conversations", "/v1/files"):
            reply = http.post(path, content=b"x", headers={"content-encoding": "br"})
            assert error_of(reply, 415)["code"] == "unsupported_media_type"
