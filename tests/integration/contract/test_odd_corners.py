"""Section 10 and what else the official client meets."""

from __future__ import annotations

import gzip

import orjson

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


def test_z_02_compression(live: Live) -> None:
    packed = gzip.compress(orjson.dumps(live.chat("hi")))
    with live.http() as http:
        http.headers["accept-encoding"] = "gzip, br"
        reply = http.post(
            CHAT,
            content=packed,
            headers={"content-type": "application/json", "content-encoding": "gzip"},
        )
        assert reply.status_code in (400, 415)
        error_of(reply, reply.status_code)
        # What is not compressed does not say that it is.
        models = http.get("/v1/models")
        assert "content-encoding" not in models.headers
        stream = http.post(CHAT, json=live.chat("hi", stream=True))
        assert "content-encoding" not in stream.headers
