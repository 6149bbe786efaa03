"""LiteLLM's proxy passes chat, tools, responses, embeddings, files and batches on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from openai import OpenAI

START_S: Final = 400
pytestmark = pytest.mark.timeout(2 * START_S)  # a busy machine takes minutes to import it
BATCH_S: Final = 60
MODEL, EMBEDDER = os.environ["CONFORMANCE_MODEL"], os.environ["CONFORMANCE_EMBEDDER"]
THERE: Final = {
    "api_base": f"{os.environ['CONFORMANCE_URL']}/v1",
    "api_key": os.environ["CONFORMANCE_KEY"],
}
CONFIG: Final[dict[str, Any]] = {
    "model_list": [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", **THERE}}
        for name in (MODEL, EMBEDDER)
    ],
    "files_settings": [{"custom_llm_provider": "openai", **THERE}],
    "general_settings": {"master_key": "sk-proxy"},
}
TOOL: Final[Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """The official client at the proxy."""
    config = tmp_path_factory.mktemp("proxy") / "config.yaml"
    config.write_text(json.dumps(CONFIG))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # It looks for prices on the Internet otherwise.
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    for name in ("DATABASE_URL", "REDIS_URL"):
        env.pop(name, None)
    cli = Path(sys.executable).with_name("litellm")
    argv = [str(cli), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(argv, env=env, cwd=config.parent)
    url = f"http://127.0.0.1:{port}"
    try:
        give_up_s = time.monotonic() + START_S
        while not _answers(url):
            assert process.poll() is None
            assert time.monotonic() < give_up_s
            time.sleep(0.2)
        yield OpenAI(base_url=f"{url}/v1", api_key="sk-proxy", max_retries=0)
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=5).is_success
    except httpx.HTTPError:
        return False


def test_chat(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "fake:text=Good_day"}]
    whole = client.chat.completions.create(model=MODEL, messages=asked)
    assert whole.choices[0].message.content == "Good day"
    pieces = client.chat.completions.create(
        model=MODEL, messages=asked, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(pieces)
    said = [one.choices[0].delta.content or "" for one in chunks if one.choices]
    assert "".join(said) == "Good day"
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 2


def test_tools_and_a_form(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "Paris? fake:call=get_weather"}]
    called = client.chat.completions.create(
        model=MODEL,
        messages=asked,
        tools=[TOOL],
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
    )
    assert called.choices[0].finish_reason == "tool_calls"
    calls: Any = called.choices[0].message.tool_calls
    said: Any = called.choices[0].message.model_dump(exclude_none=True)
    given: Any = {"role": "tool", "tool_call_id": calls[0].id, "content": "fake:text=18_degrees"}
    again = client.chat.completions.create(
        model=MODEL, messages=[*asked, said, given], tools=[TOOL]
    )
    assert again.choices[0].message.content == "18 degrees"


def test_responses(client: OpenAI) -> None:
    whole = client.responses.create(model=MODEL, input="fake:text=Good_day")
    assert whole.output_text == "Good day"
    with client.responses.stream(model=MODEL, input="fake:text=Good_day") as stream:
        assert stream.get_final_response().output_text == "Good day"


def test_embeddings(client: OpenAI) -> None:
    made = client.embeddings.create(model=EMBEDDER, input=["one", "two"])
    assert [one.index for one in made.data] == [0, 1]


def test_files_and_a_batch(client: OpenAI) -> None:
    here: Any = {"custom_llm_provider": "openai"}
    rows = [
        {
            "custom_id": f"row-{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": MODEL,
                "messages": [{"role": "user", "content": f"fake:text=answer_{i}"}],
            },
        }
        for i in range(5)
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    file = client.files.create(file=("rows.jsonl", lines), purpose="batch", extra_body=here)
    assert client.files.content(file.id, extra_query=here).content == lines
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_body=here,
    )
    give_up_s = time.monotonic() + BATCH_S
    while batch.status not in {"completed", "failed", "cancelled", "expired"}:
        assert time.monotonic() < give_up_s, batch
        time.sleep(0.5)
        batch = client.batches.retrieve(batch.id, extra_query=here)
    assert batch.status == "completed"
    assert batch.output_file_id
    assert batch.request_counts
    assert batch.request_counts.completed == len(rows)
    results = client.files.content(batch.output_file_id, extra_query=here).text.strip().split("\n")
    said = {
        one["custom_id"]: one["response"]["body"]["choices"][0]["message"]["content"]
        for one in map(json.loads, results)
    }
    assert said == {f"row-{i}": f"answer {i}" for i in range(5)}
    assert batch.id in {one.id for one in client.batches.list(extra_query=here)}
