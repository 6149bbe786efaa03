"""What is made of a large body, part by part, is not made on the loop that all streams share."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.gateway.conftest import Online

MANY: list[dict[str, Any]] = [{"role": "user", "content": "a" * 40}] * 3000
FEW_CALLS = 1000
"""Of one function of ours: no large body is looked at message by message with so few."""

OURS = ("/api/", "/gateway/", "/engine_adapter/client/")


@contextmanager
def _calls_on_this_thread() -> Iterator[Counter[str]]:
    """Calls of our own functions, by name; what other threads do is not seen."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        fakes = "fake" in code.co_filename or "/tests/" in code.co_filename
        if event == "call" and not fakes and any(one in code.co_filename for one in OURS):
            calls[f"{code.co_filename}:{code.co_qualname}"] += 1

    assert threading.current_thread() is threading.main_thread()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.fixture
def online_settings() -> dict[str, Any]:
    return {"body_limit_bytes": 4 * 1024 * 1024}


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("chat/completions", {"messages": MANY}),
        ("responses", {"input": MANY}),
        ("responses", {"input": MANY, "background": True}),
    ],
    ids=["chat", "response", "in the background"],
)
async def test_no_function_runs_once_a_message(
    online: Online, path: str, more: dict[str, Any]
) -> None:
    body = {"model": online.model, **more}
    async with online.http() as http:
        with _calls_on_this_thread() as calls:
            reply = await http.post(f"/v1/{path}", json=body)
    assert reply.status_code in (200, 400), reply.text
    assert {name: num for name, num in calls.items() if num > FEW_CALLS} == {}


async def test_nor_where_a_long_conversation_goes_on(online: Online) -> None:
    body: dict[str, Any] = {"model": online.model, "input": MANY[:600], "max_output_tokens": 8}
    async with online.http() as http:
        for _ in range(2):
            first = await http.post("/v1/responses", json=body)
            assert first.status_code == 200, first.text
            body["previous_response_id"] = first.json()["id"]
        with _calls_on_this_thread() as calls:
            last = await http.post("/v1/responses", json={**body, "input": "Go on."})
    assert last.status_code == 200, last.text
    assert {name: num for name, num in calls.items() if num > FEW_CALLS} == {}
