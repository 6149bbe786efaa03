"""A conversation that is too long for its model is sent without its beginning.

Only the engine counts tokens, so it is asked: what it refuses as too long is sent again without its
oldest pieces, as many as the numbers of the refusal say.

    system's words  user, answer  user, call, output, answer  user, call, output, call, output
    stay            a piece       a piece                     stays, a piece,     stays
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import orjson

from api.engine_errors import share_that_fits
from api.errors import ContextLengthExceeded
from engine_adapter.client.base import (
    CHAT_PATH,
    EngineCall,
    EngineClient,
    EngineReply,
    EngineStream,
)
from engine_adapter.client.estimate import ASCII_CHARS_PER_TOKEN, prompt_tokens
from engine_adapter.client.long_answers import aside

MOST_KEPT: Final = 0.9
"""Of what was refused: estimates may be wrong, and each try must come nearer to the end."""

_FIRST: Final = frozenset({"system", "developer"})

Message = Mapping[str, Any]


async def answered(client: EngineClient, call: EngineCall) -> EngineReply:
    """`EngineClient.call`, of a chat call that may be shortened (`EngineCall.truncates`)."""
    while True:
        reply = await client.call(call)
        if reply.ok or not call.truncates:
            return reply
        error = reply.body["error"]
        shorter = None
        if error["code"] == ContextLengthExceeded.default_code:
            shorter = await _shortened_aside(call, error["message"])
        if shorter is None:
            return reply
        call = shorter


async def streamed(client: EngineClient, call: EngineCall) -> EngineStream:
    """`EngineClient.stream`, of a chat call that may be shortened."""
    while True:
        try:
            return await client.stream(call)
        except ContextLengthExceeded as error:
            shorter = await _shortened_aside(call, error.message) if call.truncates else None
            if shorter is None:
                raise
            call = shorter


async def _shortened_aside(call: EngineCall, refusal: str) -> EngineCall | None:
    """The same; of a long conversation beside the event loop."""
    return await aside(partial(shortened, call, refusal), is_long=call.is_large)


def shortened(call: EngineCall, refusal: str) -> EngineCall | None:
    """The call without its oldest pieces, after a refusal; none if nothing may be dropped."""
    share = min(share_that_fits(refusal), MOST_KEPT)
    messages: Sequence[Message] = call.body["messages"]
    droppable = _droppable(messages)
    if share <= 0 or not droppable:
        return None
    num_tokens = _num_tokens(messages) + _num_tokens([], call.body)
    most, dropped = share * num_tokens, set[int]()
    for piece in droppable:
        dropped.update(piece)
        num_tokens -= _num_tokens(messages[place] for place in piece)
        if num_tokens <= most:
            break
    kept = [message for place, message in enumerate(messages) if place not in dropped]
    return replace(call, body={**call.body, "messages": kept})


def _droppable(messages: Sequence[Message]) -> list[range]:
    """Places of the pieces that may be dropped, oldest first: a call goes with its outputs."""
    roles = [message["role"] for message in messages]
    begin = next((i for i, role in enumerate(roles) if role not in _FIRST), len(roles))
    turns = [i for i in range(begin, len(roles)) if roles[i] == "user"]
    last = turns[-1] if turns else begin
    starts = sorted({begin, *turns}) if begin < last else [last]
    # Of the last turn the user's words stay, and the newest step.
    steps = [i for i in range(last + 1, len(roles)) if roles[i] == "assistant"]
    return [*_between(starts), *_between(steps)]


def _between(starts: Sequence[int]) -> list[range]:
    return [range(*pair) for pair in pairwise(starts)]


def _num_tokens(messages: Iterable[Message], body: Message | None = None) -> int:
    """About how many tokens messages have, their calls too; or what a body has beside them."""
    listed = list(messages)
    calls = [message["tool_calls"] for message in listed if message.get("tool_calls")]
    counted = prompt_tokens(CHAT_PATH, {**(body or {}), "messages": listed})
    return counted + len(orjson.dumps(calls)) // ASCII_CHARS_PER_TOKEN
