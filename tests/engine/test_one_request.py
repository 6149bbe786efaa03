"""One request cannot end a real engine: what it asks for is refused, and the next is served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
import pytest_asyncio

from api.errors import InvalidRequest
from api.numbers import check_numbers
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EngineCall
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.rid import new_rid
from engine_adapter.liveness import verify_engine
from engine_adapter.scheduling.request import RequestClass
from tests.fixtures.engine import START_LIMIT_S, RunningEngine


@pytest_asyncio.fixture
async def client(engine: RunningEngine) -> AsyncIterator[HttpEngineClient]:
    """A client of the session's engine: it sends what the gateway would not let through."""
    await verify_engine(engine.url, engine.model, START_LIMIT_S)
    http = HttpEngineClient(engine.url)
    yield http
    await http.close()


def call(engine: RunningEngine, path: str = COMPLETIONS_PATH, **fields: Any) -> EngineCall:
    prompt: dict[str, Any] = {"prompt": "hi"}
    if path == CHAT_PATH:
        prompt = {"messages": [{"role": "user", "content": "hi"}]}
    body = {"model": engine.model, "max_tokens": 8, **prompt, **fields}
    return EngineCall(path, body, new_rid(), RequestClass.ONLINE)


async def lives(engine: RunningEngine, client: HttpEngineClient) -> bool:
    return (await client.call(call(engine))).ok and psutil.pid_exists(engine.pid)


async def test_numbers_beyond_the_model(engine: RunningEngine, client: HttpEngineClient) -> None:
    sizes = (await client.facts()).sizes
    assert all(sizes), "the engine tells them all"
    beyond = sizes.vocab_size
    for fields, param in (
        ({"prompt": [beyond]}, "prompt"),
        ({"prompt": [1, beyond + 4096]}, "prompt"),
        ({"stop_token_ids": [beyond], "min_tokens": 2}, "stop_token_ids"),
        ({"stop_token_ids": [beyond + 1], "min_tokens": 2}, "stop_token_ids"),
        ({"logit_bias": {str(beyond): 1}}, "logit_bias"),
    ):
        with pytest.raises(InvalidRequest):
            check_numbers(fields, sizes)  # the gateway is no looser than the engine
        reply = await client.call(call(engine, **fields))
        assert (reply.status_code, reply.retryable) == (400, False), (fields, reply.body)
        assert reply.body["error"]["param"] == param
        assert await lives(engine, client), fields
    assert (await client.call(call(engine, prompt=[beyond - 1]))).ok


async def test_a_stop_text_at_the_last_allowed_token(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    plain = await client.call(call(engine, temperature=0, logprobs=0))
    (choice,) = plain.body["choices"]
    assert choice["finish_reason"] == "length"
    tokens: list[str] = choice["logprobs"]["tokens"]
    starts = ["".join(tokens[:i]) for i in range(len(tokens))]
    whole = "".join(tokens)
    new = [whole.find(token) == len(start) for token, start in zip(tokens, starts, strict=True)]
    ends = next(i for i in range(1, len(tokens)) if new[i] and tokens[i].isascii())
    stopped = await client.call(call(engine, temperature=0, max_tokens=ends + 1, stop=tokens[ends]))
    assert stopped.body["choices"][0]["finish_reason"] == "stop"
    assert stopped.body["choices"][0]["text"] == "".join(tokens[:ends])
    cut = await client.call(call(engine, temperature=0, max_tokens=ends, stop=tokens[ends]))
    assert cut.body["choices"][0]["finish_reason"] == "length"


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"$ref": "#"}, "response_format"),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"],
      "$defs": {"x": {"$ref": "#/$defs/x"}}}, "response_format"),
]  # fmt: skip


async def test_grammars_that_nothing_satisfies(
    engine: RunningEngine, client: HttpEngineClient
) -> None:
    for schema, param in IMPOSSIBLE:
        shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        reply = await client.call(call(engine, CHAT_PATH, response_format=shape, max_tokens=64))
        assert (reply.status_code, reply.body["error"]["param"]) == (400, param), reply.body
        assert not reply.retryable
        assert await lives(engine, client), schema
    for fields in ({"ebnf": "root ::= root"}, {"ebnf": 'root ::= "a" b\nb ::= b'}):
        reply = await client.call(call(engine, CHAT_PATH, **fields))
        assert (reply.status_code, reply.body["error"]["param"]) == (400, "ebnf"), reply.body
        assert await lives(engine, client), fields
