"""What Open WebUI asks for, as docs/other-engines.md sets it up: models, a stream, a title."""

from __future__ import annotations

from typing import Any

import pytest

from bench.background_tasks import measure
from tests.integration.gateway.conftest import MODEL, Online


@pytest.fixture
def online_settings() -> dict[str, Any]:
    return {"model_aliases": f"tasks={MODEL}@flex"}


async def test_chat_and_the_tasks_beside_it(online: Online) -> None:
    asked = [{"role": "user", "content": "fake:text=Paris_it_is"}]
    async with online.http() as http:
        listed = (await http.get("/v1/models")).json()["data"]
        assert {MODEL, "tasks"} <= {one["id"] for one in listed}
        body = {"model": MODEL, "messages": asked, "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = [line async for line in answer.aiter_lines() if line]
        assert lines[-1] == "data: [DONE]"
        titled = await http.post(
            "/v1/chat/completions",
            json={"model": "tasks", "messages": asked, "stream": False, "max_tokens": 1000},
        )
    assert titled.status_code == 200, titled.text
    classes = [
        ((one.get("custom_params") or {}).get("coserve") or {}).get("class", "online")
        for one in online.engine.received
    ]
    assert classes == ["online", "flex"]


async def test_the_measurement_of_the_page_sends_tasks_both_ways(online: Online) -> None:
    found = await measure(online.url, online.key, MODEL, seconds=1.8, rate=10)
    assert all(one["n"] > 2 and one["p50_ms"] <= one["p90_ms"] for one in found.values()), found
    flex: list[str] = []
    chats: list[str] = []
    for one in online.engine.received:
        is_flex = "flex" in str(one.get("custom_params"))
        (flex if is_flex else chats).append(one["messages"][-1]["content"])
    assert all(said.startswith("### Task:") for said in flex)
    own = [said for said in chats if said.startswith("### Task:")]
    tasks = {"flex": len(flex), "own": len(own)}
    assert tasks == {
        "flex": 3 * found["tasks with the flex alias"]["n"],
        "own": 3 * found["tasks with the chat's model"]["n"],
    }
