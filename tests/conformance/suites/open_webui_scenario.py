"""Open WebUI's server: models, chat, its tasks beside a chat, responses, and files and batches.

It is the slim build: without models of its own and without stores of vectors.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from openai import OpenAI

START_S: Final = 400
pytestmark = pytest.mark.timeout(2 * START_S)  # a busy machine takes minutes to import it
BATCH_S: Final = 60
MODEL, EMBEDDER = os.environ["CONFORMANCE_MODEL"], os.environ["CONFORMANCE_EMBEDDER"]
COSERVE, KEY = f"{os.environ['CONFORMANCE_URL']}/v1", os.environ["CONFORMANCE_KEY"]
ASKED: Final = [{"role": "user", "content": "fake:text=Good_day"}]


@pytest.fixture(scope="module")
def webui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Its API, signed in as the first user."""
    home = tmp_path_factory.mktemp("webui")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "FROM_INIT_PY": "true",
        "USE_SLIM_DOCKER": "true",
        "OFFLINE_MODE": "true",
        "DATA_DIR": str(home),
        "STATIC_DIR": str(home / "static"),
        "WEBUI_SECRET_KEY": "a secret of thirty-two characters",
        "OPENAI_API_BASE_URL": COSERVE,
        "OPENAI_API_KEY": KEY,
        "ENABLE_OLLAMA_API": "false",
        "ENABLE_OPENAI_API_PASSTHROUGH": "true",
    }
    for name in ("DATABASE_URL", "REDIS_URL"):
        env.pop(name, None)
    argv = ["-m", "uvicorn", "open_webui.main:app", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([sys.executable, *argv], env=env, cwd=home)
    url = f"http://127.0.0.1:{port}"
    try:
        give_up_s = time.monotonic() + START_S
        while not _answers(url):
            assert process.poll() is None
            assert time.monotonic() < give_up_s
            time.sleep(0.2)
        with httpx.Client(base_url=url, timeout=120) as http:
            user = {"name": "A", "email": "a@example.com", "password": "a password of 1 user"}
            signed = http.post("/api/v1/auths/signup", json=user)
            assert signed.is_success, signed.text
            http.headers["authorization"] = f"Bearer {signed.json()['token']}"
            yield http
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).is_success
    except httpx.HTTPError:
        return False


def _asked(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    reply = http.post(path, json={"model": MODEL, "messages": ASKED, **body})
    assert reply.is_success, reply.text
    return reply.json()


def test_models(webui: httpx.Client) -> None:
    listed = webui.get("/api/models").json()["data"]
    assert {MODEL, EMBEDDER} <= {one["id"] for one in listed}


def test_chat(webui: httpx.Client) -> None:
    whole = _asked(webui, "/api/chat/completions", {"stream": False})
    assert whole["choices"][0]["message"]["content"] == "Good day"
    said = ""
    body = {"model": MODEL, "messages": ASKED, "stream": True}
    with webui.stream("POST", "/api/chat/completions", json=body) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                said += "".join(one["delta"].get("content") or "" for one in chunk["choices"])
    assert said == "Good day"


@pytest.mark.parametrize("task", ["title", "tags", "follow_up"])
def test_a_task_beside_a_chat(webui: httpx.Client, task: str) -> None:
    told = [*ASKED, {"role": "assistant", "content": "Good day"}]
    reply = _asked(webui, f"/api/v1/tasks/{task}/completions", {"messages": told})
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["choices"][0]["message"]["content"].startswith("Good day")


def test_responses_and_embeddings(webui: httpx.Client) -> None:
    body = {"model": MODEL, "input": "fake:text=Good_day", "stream": False}
    made = webui.post("/openai/responses", json=body)
    assert made.is_success, made.text
    assert made.json()["output"][0]["content"][0]["text"] == "Good day"
    vectors = webui.post("/api/embeddings", json={"model": EMBEDDER, "input": ["one", "two"]})
    assert [one["index"] for one in vectors.json()["data"]] == [0, 1]


def test_files_and_a_batch(webui: httpx.Client) -> None:
    row = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": MODEL, "messages": ASKED},
    }
    # It hands JSON on and no forms: the file itself comes from the official client.
    with OpenAI(base_url=COSERVE, api_key=KEY, max_retries=0) as client:
        lines = (json.dumps(row) + "\n").encode()
        file = client.files.create(file=("rows.jsonl", lines), purpose="batch")
    assert file.id in {one["id"] for one in webui.get("/openai/files").json()["data"]}
    assert webui.get(f"/openai/files/{file.id}/content").is_success
    asked = {
        "input_file_id": file.id,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    batch = webui.post("/openai/batches", json=asked).json()
    give_up_s = time.monotonic() + BATCH_S
    while batch["status"] not in {"completed", "failed", "cancelled", "expired"}:
        assert time.monotonic() < give_up_s, batch
        time.sleep(0.5)
        batch = webui.get(f"/openai/batches/{batch['id']}").json()
    assert batch["request_counts"]["completed"] == 1, batch
