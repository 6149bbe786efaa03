"""Whole answers: the choices' calls side by side, merged into one body."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from api.errors import ApiError, EngineUnavailable
from api.json_output import dump
from api.replies import reply_body
from api.usage import TokenUsage
from engine_adapter.client.base import EMBEDDINGS_PATH, EngineCall, EngineClient, EngineReply
from engine_adapter.client.decoding import error_reply
from engine_adapter.client.embedding import embed
from gateway.prompts.admission import Admitted

JSON = "application/json"


async def answer(admitted: Admitted, client: EngineClient, created: int) -> Response:
    """The response to a request that is not streamed.

    The first choice that fails ends the others: half a reply is no reply.

    Raises:
        EngineUnavailable: The engine was lost.
    """
    if admitted.path == EMBEDDINGS_PATH:
        return _embeddings(await embed(client, admitted.choices[0].call))
    if len(admitted.choices) == 1:
        reply = await client.call(admitted.choices[0].call)
        return _told(admitted, {**reply.body, "created": created}) if reply.ok else failed(reply)
    used = TokenUsage()
    choices: list[dict[str, Any]] = []
    for choice, reply in zip(admitted.choices, await _all(admitted, client), strict=True):
        if not reply.ok:
            return failed(reply)
        part = reply.usage or TokenUsage()
        used += part if choice.counts_prompt else part.without_prompt()
        choices += [{**made, "index": choice.index} for made in reply.body["choices"]]
    rid = admitted.choices[0].call.rid
    return _told(admitted, reply_body(admitted.path, rid, created, admitted.model, choices, used))


def _told(admitted: Admitted, body: dict[str, Any]) -> Response:
    if admitted.service_tier is not None:
        body["service_tier"] = admitted.service_tier
    return Response(dump(body), media_type=JSON)


async def _all(admitted: Admitted, client: EngineClient) -> list[EngineReply]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_one(client, choice.call)) for choice in admitted.choices]
    except BaseExceptionGroup as errors:
        for error in errors.exceptions:
            if isinstance(error, _Refused):
                return [error.reply] * len(admitted.choices)
        for error in errors.exceptions:
            if isinstance(error, EngineUnavailable):
                raise error from error.__cause__
        raise
    return [task.result() for task in tasks]


class _Refused(Exception):
    def __init__(self, reply: EngineReply) -> None:
        super().__init__(reply.status_code)
        self.reply = reply


async def _one(client: EngineClient, call: EngineCall) -> EngineReply:
    try:
        reply = await client.call(call)
    except EngineUnavailable:
        raise  # ends the group too: the whole request may go elsewhere
    except ApiError as error:
        reply = error_reply(call, error)
    if not reply.ok:
        # Ends the group, and with it the other calls.
        raise _Refused(reply)
    return reply


def _embeddings(reply: EngineReply) -> Response:
    if not reply.ok:
        return failed(reply)
    return Response(dump(reply.body), media_type=JSON)


def failed(reply: EngineReply) -> Response:
    """The response to a call that the engine did not answer."""
    return Response(
        dump(reply.body),
        status_code=reply.status_code,
        headers=dict(reply.headers),
        media_type=JSON,
    )
