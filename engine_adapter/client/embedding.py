"""An embeddings request with many inputs, as one engine call per input.

SGLang wants an id of its own for every input, and drops requests by id: a call per input keeps
"one call, one id" true for embeddings too, so that one that nobody waits for can be dropped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from api.embedding_reply import embedding_body
from api.embedding_request import inputs_of
from engine_adapter.client.base import EngineCall, EngineClient, EngineReply, TokenUsage
from engine_adapter.client.choices import fan_out
from engine_adapter.client.rid import new_rid

MAX_AT_ONCE: Final = 32
"""Inputs of one request that are with the engine at the same time."""


async def embed(client: EngineClient, call: EngineCall) -> EngineReply:
    """Run an embeddings call with one or more inputs; the entries of `data` are in their order.

    The first input that is refused ends the others, and its error is the reply.

    Raises:
        EngineUnavailable: The engine was lost.
    """
    inputs = inputs_of(call.body)
    if len(inputs) == 1:
        return await client.call(call)
    calls = (
        replace(call, rid=new_rid() if index else call.rid, body={**call.body, "input": one})
        for index, one in enumerate(inputs)
    )
    replies = await fan_out(client, calls, MAX_AT_ONCE)
    return _merged(call, replies) if replies[0].ok else replies[0]


def _merged(call: EngineCall, replies: list[EngineReply]) -> EngineReply:
    usage = TokenUsage()
    items: list[dict[str, Any]] = []
    for index, reply in enumerate(replies):
        usage += reply.usage or TokenUsage()
        items.append({**reply.body["data"][0], "index": index})
    body = embedding_body(str(call.body.get("model", "")), items, usage)
    return EngineReply(200, body, usage=usage, request_id=call.request_id)
