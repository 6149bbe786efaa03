"""Every kind of call through Prism: it compares request and reply with the description.

Prism hands both on and names what it finds wrong in the header `sl-violations`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import openai
import pytest
from openai import OpenAI

PROXY = os.environ["CONFORMANCE_PROXY"]
MODEL = os.environ["CONFORMANCE_MODEL"]
EMBEDDER = os.environ["CONFORMANCE_EMBEDDER"]
CHAT: Final = "/v1/chat/completions"
HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
def client() -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{PROXY}/v1", api_key=os.environ["CONFORMANCE_KEY"], max_retries=0
    ) as made:
        yield made


def good(raw: Any) -> Any:
    """What a raw response holds, if Prism has nothing to say about it."""
    assert wrong_replies(raw.headers) == []
    return raw.parse()


def wrong_replies(headers: Any) -> list[Any]:
    """What Prism says of the reply; the requests are the official client's own."""
    found = json.loads(headers.get("sl-violations", "[]"))
    return [one for one in found if one["location"][0] == "response"]


def test_prism_finds_what_is_wrong() -> None:
    """`/healthz` is described wrongly on purpose."""
    reply = httpx2.get(f"{PROXY}/healthz")
    assert "never there" in reply.headers["sl-violations"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n": 2, "stop": ["x"], "seed": 1, "user": "u", "metadata": {"a": "b"}},
        {"service_tier": "flex", "max_completion_tokens": 3},
        {"service_tier": "priority", "temperature": 0.5, "top_p": 0.9},
        {"presence_penalty": 1, "frequency_penalty": -1, "store": False},
    ],
    ids=str,
)
def test_chat(client: OpenAI, more: dict[str, Any]) -> None:
    create = client.chat.completions.with_raw_response.create
    assert good(create(model=MODEL, messages=HELLO, **more)).choices


def test_completions(client: OpenAI) -> None:
    create = client.completions.with_raw_response.create
    assert good(create(model=MODEL, prompt="x", max_tokens=3, echo=False)).choices
    assert len(good(create(model=MODEL, prompt=["x", "y"], n=2)).choices) == 4


@pytest.mark.skipif(not EMBEDDER, reason="no engine here makes embeddings")
def test_embeddings(client: OpenAI) -> None:
    create = client.embeddings.with_raw_response.create
    assert good(create(model=EMBEDDER, input=["x", "y"], encoding_format="float")).data
    assert good(create(model=EMBEDDER, input=[1, 2], encoding_format="float", dimensions=4)).data


def test_models(client: OpenAI) -> None:
    assert good(client.models.with_raw_response.list()).data
    assert good(client.models.with_raw_response.retrieve(MODEL)).id == MODEL


def test_files_and_a_batch_from_creation_to_end(client: OpenAI) -> None:
    files, batches = client.files.with_raw_response, client.batches.with_raw_response
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 2}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": body})
    file = good(files.create(file=("in.jsonl", line.encode()), purpose="batch"))
    plain = good(files.create(file=("a.txt", b"x"), purpose="user_data"))
    assert good(files.retrieve(plain.id)).expires_at is None
    assert good(files.list(limit=1)).data
    assert good(files.list(purpose="vision")).data == []
    batch = good(batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h"))
    until_s = time.monotonic() + 90
    while batch.status != "completed" and time.monotonic() < until_s:
        batch = good(batches.retrieve(batch.id))
        time.sleep(0.1)
    assert batch.status == "completed"
    assert good(batches.list(limit=1)).data
    second = good(batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h"))
    try:
        assert good(batches.cancel(second.id)).status in ("cancelling", "cancelled")
    except openai.ConflictError:
        assert good(batches.retrieve(second.id)).status == "completed"
    assert good(files.delete(plain.id)).deleted


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models/none", None, 404),
        ("GET", "/v1/files/file-none", None, 404),
        ("GET", "/v1/batches/batch_none", None, 404),
        ("POST", CHAT, {"model": "none", "messages": HELLO}, 404),
        ("POST", "/v1/batches", {"input_file_id": "file-none", "endpoint": CHAT,
                                 "completion_window": "24h"}, 400),
    ],
    ids=str,
)  # fmt: skip
def test_refusals(client: OpenAI, method: str, path: str, body: Any, status: int) -> None:
    headers = {"authorization": f"Bearer {client.api_key}"}
    reply = httpx2.request(method, PROXY + path, json=body, headers=headers)
    assert reply.status_code == status, reply.text
    assert wrong_replies(reply.headers) == []
