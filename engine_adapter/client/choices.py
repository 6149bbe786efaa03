"""A request for several choices, as one engine call per choice.

Only a call's own id can abort it, and an engine's own `n` has ids of its own making. So `n` choices
of `k` prompts are `k * n` calls, and one body is made of their replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Choices of one row that are with the engine at the same time: a row is one place there."""

ONLINE_AT_ONCE: Final = 32
"""Choices of one request that are with the engine at the same time: others come in between."""

_MAX_SEED: Final = 2**63 - 1


@dataclass(frozen=True)
class Choice:
    """One choice of a reply and the call that makes it.

    Attributes:
        index: Place in the reply: prompt number times `n` plus choice number.
        call: The engine call.
        counts_prompt: The prompt's tokens are counted with this choice (the first of its prompt).
    """

    index: int
    call: EngineCall
    counts_prompt: bool


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


def choices_of(call: EngineCall) -> tuple[Choice, ...]:
    """A call for one or more choices, as one call each; the first keeps its id."""
    bodies = single_choice_bodies(call.path, call.body)
    if len(bodies) == 1:
        ((body, _),) = bodies
        return (Choice(0, replace(call, body=body), True),)
    return tuple(
        Choice(
            index,
            replace(call, rid=new_rid() if index else call.rid, body=body, served=Served()),
            counts_prompt,
        )
        for index, (body, counts_prompt) in enumerate(bodies)
    )


def served_of(choices: Sequence[Choice]) -> TokenUsage:
    """Of calls that may have been cut: a prompt counts with the first that has served it."""
    total = TokenUsage()
    owed = False
    for choice in choices:
        served = choice.call.served.usage
        owed = owed or choice.counts_prompt
        total += served if owed else served.without_prompt()
        owed = owed and not served.prompt_tokens
    return total


def not_held_of(choices: Sequence[Choice]) -> set[str]:
    """Fields that an engine could not follow in one of the calls."""
    return {name for choice in choices for name in choice.call.served.not_held}


async def complete(client: EngineClient, call: EngineCall) -> EngineReply:
    """Run a chat or completions call with one or more choices to its end.

    Raises:
        EngineUnavailable: The engine was lost.
    """
    if call.path == CHAT_PATH and (call.body.get("n") or 1) == 1:
        return await client.call(call)
    choices = choices_of(call)
    try:
        return await complete_choices(client, choices, MAX_AT_ONCE)
    finally:
        if len(choices) > 1:  # one alone shares what the call has served
            call.served.add(served_of(choices))
            call.served.not_held |= not_held_of(choices)


async def complete_choices(
    client: EngineClient, choices: Sequence[Choice], at_once: int
) -> EngineReply:
    """Run the calls of one reply to their end; a prompt counts once for all its choices.

    The first choice that is refused ends the others, and its error is the reply.

    Raises:
        EngineUnavailable: The engine was lost.
    """
    first = choices[0].call
    if len(choices) == 1:
        return await client.call(first)
    replies = await fan_out(client, (choice.call for choice in choices), at_once)
    if not replies[0].ok:
        return replies[0]
    usage = TokenUsage()
    made: list[dict[str, Any]] = []
    for choice, reply in zip(choices, replies, strict=True):
        part = reply.usage or TokenUsage()
        usage += part if choice.counts_prompt else part.without_prompt()
        made += [{**one, "index": choice.index} for one in reply.body["choices"]]
    created = int(replies[0].body["created"])
    model = str(first.body.get("model", ""))
    body = reply_body(first.path, first.rid, created, model, made, usage)
    is_long = any(reply.is_long for reply in replies)
    return EngineReply(200, body, usage=usage, request_id=first.request_id, is_long=is_long)


async def fan_out(
    client: EngineClient, calls: Iterable[EngineCall], at_once: int
) -> list[EngineReply]:
    """The replies to the calls of one request, in order; or one alone: the first refusal.

    A refusal ends the other calls, for half a reply is no reply. There are as many tasks as calls
    at once, and not as calls: a request may have thousands, and they would all begin in one turn of
    the event loop.

    Args:
        client: The engine.
        calls: The calls; each is made when its turn comes.
        at_once: How many of them are with the engine at the same time.

    Raises:
        EngineUnavailable: The engine was lost.
    """
    replies: dict[int, EngineReply] = {}
    to_come = enumerate(calls)

    async def work() -> None:
        for index, call in to_come:
            replies[index] = reply = await client.call(call)
            if not reply.ok:
                raise _Refused(reply)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        for error in errors.exceptions:
            if isinstance(error, _Refused):
                return [error.reply]
        lost = errors.exceptions[0]
        raise lost from lost.__cause__
    return [reply for _, reply in sorted(replies.items())]


class _Refused(Exception):
    """Ends the group of calls."""

    def __init__(self, reply: EngineReply) -> None:
        super().__init__(reply.status_code)
        self.reply = reply


def _next_seed(seed: int, k: int) -> int:
    return seed + k if seed <= _MAX_SEED - k else seed - k


def _single_prompt_bodies(path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    if path == CHAT_PATH:
        return [dict(body)]
    limit = body.get("max_tokens")
    limit = DEFAULT_MAX_TOKENS if limit is None else limit
    return [{**body, "prompt": prompt, "max_tokens": limit} for prompt in prompts_of(body)]
