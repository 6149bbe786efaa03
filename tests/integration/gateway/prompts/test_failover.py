"""Which failures of one request count against its engine."""

from __future__ import annotations

from tests.integration.gateway.conftest import Online


async def test_an_answer_that_lacks_a_part_does_not_take_the_engine_from_others(
    online: Online,
) -> None:
    # The fake engine gives no log probabilities, which scoring a prompt is made of.
    scored = {"model": online.model, "prompt": "x", "max_tokens": 0, "echo": True, "logprobs": 1}
    async with online.http() as client:
        refused = await client.post("/v1/completions", json=scored)
        served = await client.post("/v1/chat/completions", json=online.chat("Hi."))
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "engine_request_failed"
    assert served.status_code == 200
