"""A request for several choices, as one engine call per choice.

Only a call's own id can abort it, and an engine's own `n` has ids of its own making. So `n` choices
of `k` prompts are `k * n` calls, and one body is made of their replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from api.completion_request import DEFAULT_MAX_TOKENS, prompts_of
from api.replies import reply_body
from engine_adapter.client.base import (
    CHAT_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    EngineClient,
    EngineReply,
    Served,
    TokenUsage,
)
from engine_adapter.client.rid import new_rid

MAX_AT_ONCE: Final = 8
"""Choices of one request that are with the engine at the same time."""

_MAX_SEED: Final = 2**63 - 1


class _Refused(Exception):
    """The engine refused one choice; ends the others, for half a reply is no reply."""

    def __init__(self, reply: EngineReply) -> None:
        super().__init__(reply.status_code)
        self.reply = reply


def single_choice_bodies(path: str, body: Mapping[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Bodies of one choice each, in order of index, and whether each counts its prompt."""
    if path == EMBEDDINGS_PATH:
        return [(dict(body), True)]
    num_choices = body.get("n") or 1
    seed = body.get("seed")
    bodies: list[tuple[dict[str, Any], bool]] = []
    for base in _single_prompt_bodies(path, body):
        for k in range(num_choices):
            # With one seed for all, the choices of a prompt would be the same text.
            own = {**base, "seed": _next_seed(seed, k)} if seed is not None and k else base
            bodies.append((own, k == 0))
    return bodies


async def complete(client: EngineClient, call: EngineCall) -> EngineReply:
    """Run a chat or completions call with one or more choices to its end.

    The first choice that is refused ends the others, and its error is the reply. A prompt counts
    once for all its choices.

    Raises:
        EngineUnavailable: The engine was lost.
    """
    if call.path == CHAT_PATH and (call.body.get("n") or 1) == 1:
        return await client.call(call)
    bodies = single_choice_bodies(call.path, call.body)
    if len(bodies) == 1:
        return await client.call(replace(call, body=bodies[0][0]))
    calls = [
        replace(call, rid=new_rid() if index else call.rid, body=body, served=Served())
        for index, (body, _) in enumerate(bodies)
    ]
    counts_prompt = [counts for _, counts in bodies]
    room = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(part: EngineCall) -> EngineReply:
        async with room:
            reply = await client.call(part)
        if not reply.ok:
            raise _Refused(reply)
        return reply

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in calls]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        if isinstance(first, _Refused):
            return first.reply
        raise first from first.__cause__
    finally:
        call.served.add(_served(calls, counts_prompt))
    return _merged(call, [task.result() for task in tasks], counts_prompt)


def _served(calls: list[EngineCall], counts_prompt: list[bool]) -> TokenUsage:
    """Of calls that may have been cut: a prompt counts with the first that has served it."""
    total = TokenUsage()
    owed = False
    for call, counts in zip(calls, counts_prompt, strict=True):
        served = call.served.usage
        owed = owed or counts
        total += served if owed else served.without_prompt()
        owed = owed and not served.prompt_tokens
    return total


def _merged(call: EngineCall, replies: list[EngineReply], counts_prompt: list[bool]) -> EngineReply:
    usage = TokenUsage()
    choices: list[dict[str, Any]] = []
    for index, (reply, counts) in enumerate(zip(replies, counts_prompt, strict=True)):
        part = reply.usage or TokenUsage()
        usage += part if counts else part.without_prompt()
        choices += [{**made, "index": index} for made in reply.body["choices"]]
    created = int(replies[0].body["created"])
    model = str(call.body.get("model", ""))
    body = reply_body(call.path, call.rid, created, model, choices, usage)
    return EngineReply(200, body, usage=usage, request_id=call.request_id)


def _next_seed(seed: int, k: int) -> int:
    return seed + k if seed <= _MAX_SEED - k else seed - k


def _single_prompt_bodies(path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    if path == CHAT_PATH:
        return [dict(body)]
    limit = body.get("max_tokens")
    limit = DEFAULT_MAX_TOKENS if limit is None else limit
    return [{**body, "prompt": prompt, "max_tokens": limit} for prompt in prompts_of(body)]
