"""A seed that the engine cannot follow is best effort, and the reply says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.integration.gateway.conftest import MODEL, Online

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": ["hi", "ho"]}),
    ("/v1/responses", {"input": "hi"}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_sampled_without_it_and_said(
    online: Online, path: str, body: dict[str, Any], *, stream: bool
) -> None:
    asked = {**body, "model": MODEL, "seed": 7, "stream": stream}
    async with online.http() as http:
        followed = await http.post(path, json=asked)
        online.engine.settings = replace(online.engine.settings, sampling_backend="flashinfer")
        await online.app.state.engines.probe()
        drawn = await http.post(path, json={**asked, "temperature": 0.7})
        sent = online.engine.received[-1]
        greedy = await http.post(path, json={**asked, "temperature": 0})
        unseeded = await http.post(path, json={**asked, "seed": None})
    assert [r.status_code for r in (followed, drawn, greedy, unseeded)] == [200] * 4
    assert drawn.headers["x-not-held"] == "seed"
    assert "seed" not in sent
    assert sent["temperature"] == 0.7
    for held in (followed, greedy, unseeded):
        assert "x-not-held" not in held.headers
