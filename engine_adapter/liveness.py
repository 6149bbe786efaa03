"""The proof, after an engine's start, that it is the engine we think it is.

SGLang only logs the errors of plugins, so an engine without ours looks healthy and serves; and a
CPU engine without our fixes dies of the first structured-output request. Both are found out here,
before anybody is served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from api.errors import EngineUnavailable
from engine_adapter.client.base import (
    CHAT_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    EngineClient,
    EngineFacts,
    EngineReply,
)
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.pool import no_plugin
from engine_adapter.client.rid import new_rid
from engine_adapter.scheduling.request import RequestClass

_POLL_INTERVAL_S = 0.25
_CALL_S = 120.0
_SAMPLINGS: Final = (
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 1.0, "min_p": 0.1},
)
"""A request for each sampler that a CUDA engine compiles on its own."""

_SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


class EngineNotProven(RuntimeError):
    """The engine must not serve; the message is one sentence."""


async def verify_engine(base_url: str, model: str, timeout_s: float) -> EngineFacts:
    """Wait for an engine and test it.

    Args:
        base_url: Where it answers, without `/v1`.
        model: The name it must serve.
        timeout_s: How long it may take to become healthy and pass.

    Returns:
        What it says about itself.

    Raises:
        EngineNotProven: It is not healthy in time, serves another model, runs without our
            scheduler, or fails one of the test requests.
    """
    client = HttpEngineClient(base_url)
    try:
        async with asyncio.timeout(timeout_s):
            while not await client.healthy():  # noqa: ASYNC110 - another process cannot set an event
                await asyncio.sleep(_POLL_INTERVAL_S)
            return await prove(client, model)
    except TimeoutError:
        raise EngineNotProven(
            f"The engine at {base_url} was not ready within {timeout_s:.0f} s."
        ) from None
    except EngineUnavailable as error:
        raise EngineNotProven(
            f"The engine at {base_url} stopped answering during its self-test."
        ) from error
    finally:
        await client.close()


async def prove(client: EngineClient, model: str) -> EngineFacts:
    """Test a healthy engine; see `verify_engine`."""
    facts = await client.facts()
    if not facts.plugin_is_live:
        raise EngineNotProven(no_plugin(client.url))
    if facts.model != model:
        raise EngineNotProven(
            f"The engine at {client.url} serves {facts.model!r}, expected {model!r}."
        )
    if facts.embeds:
        # A chat request would end such an engine.
        await _prove_embeddings(client, model)
        return facts
    hello = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
    _require(await _ask(client, model, CHAT_PATH, hello), "a chat request")
    # Samplers are compiled when they are first used: before a client waits for it.
    for sampling in _SAMPLINGS:
        _require(await _ask(client, model, CHAT_PATH, {**hello, **sampling}), "a sampled request")
    shaped = {
        "messages": [{"role": "user", "content": "Answer in JSON."}],
        "max_tokens": 64,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "self_test", "schema": _SCHEMA, "strict": True},
        },
    }
    text = _require(await _ask(client, model, CHAT_PATH, shaped), "a structured-output request")
    if not _is_self_test_answer(text):
        raise EngineNotProven(
            f"The engine at {client.url} does not hold to a JSON schema: it answered {text[:80]!r}."
        )
    return facts


async def _prove_embeddings(client: EngineClient, model: str) -> None:
    what = "an embeddings request"
    reply = await _ask(client, model, EMBEDDINGS_PATH, {"input": "Say hello."})
    _require_success(reply, what)
    if not any(reply.body["data"][0]["embedding"]):
        raise EngineNotProven(f"The engine answered {what} of its self-test with nothing.")


async def _ask(client: EngineClient, model: str, path: str, body: Mapping[str, Any]) -> EngineReply:
    return await client.call(
        EngineCall(
            path=path,
            body={"model": model, "temperature": 0, **body},
            rid=new_rid(),
            request_class=RequestClass.ONLINE,
            timeout_s=_CALL_S,
        )
    )


def _require(reply: EngineReply, what: str) -> str:
    """The answer's text.

    Raises:
        EngineNotProven: The engine refused, or what it answered has no text.
    """
    _require_success(reply, what)
    if reply.usage is None or reply.usage.completion_tokens < 1:
        raise EngineNotProven(f"The engine answered {what} of its self-test with nothing.")
    return str(reply.body["choices"][0]["message"].get("content") or "")


def _require_success(reply: EngineReply, what: str) -> None:
    if not reply.ok:
        message = reply.body.get("error", {}).get("message", "no reason given")
        raise EngineNotProven(f"The engine failed {what} of its self-test: {message}")


def _is_self_test_answer(text: str) -> bool:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(value, dict) and set(value) == {"ok"} and isinstance(value["ok"], bool)
