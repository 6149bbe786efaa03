"""claude-code-router passes on what Claude Code asks: thinking, tools, whole and streamed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

CLI: Final = (
    Path(os.environ["CONFORMANCE_TOOLS"])
    / "node_modules/@musistudio/claude-code-router/dist/cli.js"
)
MODEL: Final = os.environ["CONFORMANCE_GPU"]
HEADERS: Final = {"x-api-key": "any", "anthropic-version": "2023-06-01"}
START_S: Final = 110
TOOL: Final[dict[str, Any]] = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
QUESTION: Final = {
    "role": "user",
    "content": [{"type": "text", "text": "What is the weather in Paris? fake:call=get_weather"}],
}


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it serves."""
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (home / ".claude-code-router").mkdir()
    (home / ".claude-code-router" / "config.json").write_text(
        json.dumps(
            {
                "PORT": port,
                "HOST": "127.0.0.1",
                "NON_INTERACTIVE_MODE": True,
                "Providers": [
                    {
                        "name": "coserve",
                        "api_base_url": f"{os.environ['CONFORMANCE_URL']}/v1/chat/completions",
                        "api_key": os.environ["CONFORMANCE_KEY"],
                        "models": [MODEL],
                    }
                ],
                "Router": {"default": f"coserve,{MODEL}", "think": f"coserve,{MODEL}"},
            }
        )
    )
    process = subprocess.Popen(
        [os.environ["CONFORMANCE_NODE"], CLI, "start"], env={**os.environ, "HOME": str(home)}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        give_up_s = time.monotonic() + START_S
        while not _answers(url):
            assert process.poll() is None
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=5)
    except httpx.HTTPError:
        return False
    return True


def ask(url: str, messages: list[dict[str, Any]], **more: Any) -> httpx.Response:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": "Help.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "someone"},
        "tools": [TOOL],
        "messages": messages,
        **more,
    }
    answer = httpx.post(
        f"{url}/v1/messages", params={"beta": "true"}, json=body, headers=HEADERS, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer


def test_a_job_with_a_call(router: str) -> None:
    reply = ask(router, [QUESTION]).json()
    (call,) = [part for part in reply["content"] if part["type"] == "tool_use"]
    assert (reply["stop_reason"], call["name"]) == ("tool_use", "get_weather")
    thought = {"type": "thinking", "thinking": "I look it up.", "signature": "none"}
    result = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": "fake:text=18_degrees",
    }
    said = [
        QUESTION,
        {"role": "assistant", "content": [thought, *reply["content"]]},
        {"role": "user", "content": [result]},
    ]
    again = ask(router, said).json()
    assert (again["stop_reason"], again["content"][-1]["text"]) == ("end_turn", "18 degrees")


def test_streamed(router: str) -> None:
    text = ask(router, [QUESTION], stream=True).text
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    events = [json.loads(one) for one in data]
    begun = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert begun[-1]["name"] == "get_weather"
    arguments = "".join(
        event["delta"].get("partial_json", "")
        for event in events
        if "index" in event and event["type"] == "content_block_delta"
    )
    assert "city" in json.loads(arguments)
    assert events[-1]["type"] == "message_stop"
