"""Batches that come with their requests."""

from __future__ import annotations

from typing import Any

import openai
import orjson
import pytest
from openai import AsyncOpenAI

from api.batch_shapes import CreateBatch, CreateOptions
from batch.intake.idempotency import _asked
from batch.intake.inline import MAX_REQUESTS
from batch.intake.validate import validate
from gateway.http.body_limit import INLINE_BYTES
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.test_batches import CHAT


def asked(num: int = 3, **fields: Any) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": "hi"}]
    return [{"body": {"model": "m", "messages": messages, **fields}} for _ in range(num)]


async def create(client: AsyncOpenAI, requests: Any, key: str | None = None, **fields: Any) -> Any:
    body = {"requests": requests, "endpoint": CHAT, "completion_window": "24h", **fields}
    options: Any = {} if key is None else {"headers": {"Idempotency-Key": key}}
    return await client.post("/batches", cast_to=dict[str, Any], body=body, options=options)


async def lines(client: AsyncOpenAI, batch: dict[str, Any]) -> list[Any]:
    content = await client.files.content(batch["input_file_id"])
    return [orjson.loads(one) for one in content.read().split(b"\n") if one]


async def test_they_become_its_file(api: Api, database: Database) -> None:
    requests = [*asked(2), asked()[0] | {"custom_id": "mine", "url": CHAT, "note": "a\u2028b"}]
    async with api.client() as client:
        batch = await create(client, requests)
        await validate(database, api.app.state.file_store, batch["id"])
        later = await client.batches.retrieve(batch["id"])
        found = await lines(client, batch)
        file = await client.files.retrieve(batch["input_file_id"])
    assert (later.status, later.request_counts and later.request_counts.total) == ("in_progress", 3)
    assert [one["custom_id"] for one in found] == ["0", "1", "mine"]
    assert {(one["method"], one["url"]) for one in found} == {("POST", CHAT)}
    assert (found[2]["note"], file.purpose, file.filename) == (
        *("a\u2028b", "batch"), "requests.jsonl",
    )  # fmt: skip


async def test_what_is_wrong_in_one_is_said_by_the_batch(api: Api, database: Database) -> None:
    async with api.client() as client:
        batch = await create(client, [*asked(1), *asked(1, temperature=9)])
        await validate(database, api.app.state.file_store, batch["id"])
        failed = await client.batches.retrieve(batch["id"])
    assert failed.status == "failed"
    assert failed.errors is not None
    (fault,) = failed.errors.data or []
    assert (fault.line, fault.param) == (2, "body.temperature")


async def test_most_of_them(api: Api, database: Database) -> None:
    async with api.client() as client:
        batch = await create(client, asked(MAX_REQUESTS))
        await validate(database, api.app.state.file_store, batch["id"])
        counts = (await client.batches.retrieve(batch["id"])).request_counts
    assert counts is not None
    assert counts.total == MAX_REQUESTS


async def test_the_same_under_its_key_is_one_batch(api: Api) -> None:
    async with api.client() as client:
        first = await create(client, asked(), key="k")
        again = await create(client, asked(), key="k")
        with pytest.raises(openai.ConflictError):
            await create(client, asked(2), key="k")
        other = await create(client, asked())
        files = (await client.files.list()).data
    assert first["id"] == again["id"] != other["id"]
    assert {one.id for one in files} == {first["input_file_id"], other["input_file_id"]}
    assert await stored(api) == {first["input_file_id"], other["input_file_id"]}


async def stored(api: Api) -> set[str]:
    """What the file store holds."""
    return {path.name for path in api.files_folder.rglob("file-*")}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"requests": []}, "requests"),
        ({"requests": asked(MAX_REQUESTS + 1)}, "requests"),
        ({"requests": [*asked(1), "x"]}, "requests[1]"),
        ({"requests": "x"}, "requests"),
        ({"requests": asked(), "input_file_id": "file-x"}, "requests"),
        ({"requests": asked(), "endpoint": "/v1/moderations"}, "endpoint"),
        ({"requests": asked(), "completion_window": "1m"}, "completion_window"),
        ({"requests": None}, "input_file_id"),
    ],
)
async def test_what_is_refused_leaves_nothing(api: Api, fields: dict[str, Any], param: str) -> None:
    body = {"endpoint": CHAT, "completion_window": "24h", **fields}
    async with api.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.post("/batches", cast_to=dict[str, Any], body=body)
        assert refused.value.param == param
        assert (await client.files.list()).data == []
    assert await stored(api) == set()


async def test_its_size(api: Api) -> None:
    """Long requests, and nothing else that is long; and nothing of a stranger's is read."""
    async with api.client() as client, api.client("sk-stranger") as stranger:
        with pytest.raises(openai.APIStatusError) as refused:
            await create(client, asked(1, user="x" * INLINE_BYTES))
        assert refused.value.status_code == 413
        with pytest.raises(openai.APIStatusError) as refused:
            await create(client, asked(), metadata={"a": "x" * 200_000})
        assert refused.value.status_code == 413
        with pytest.raises(openai.BadRequestError) as complex_one:
            await create(client, asked(), metadata={str(n): n for n in range(5_000)})
        assert complex_one.value.code == "json_too_complex"
        with pytest.raises(openai.AuthenticationError):
            await create(stranger, asked(MAX_REQUESTS))


def test_a_key_stands_for_what_it_stood_for_before() -> None:
    """Keys live for a day, and longer than a rollout."""
    body = CreateBatch(input_file_id="file-1", endpoint=CHAT, completion_window="24h")
    assert _asked(body, None) == {
        "input_file_id": "file-1",
        "endpoint": CHAT,
        "completion_window": "24h",
        "metadata": None,
        "output_expires_after": None,
        "coserve": None,
    }
    body.coserve = CreateOptions()
    assert set(_asked(body, None)["coserve"]) == {"priority", "paused", "webhook_endpoints"}
