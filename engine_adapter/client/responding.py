"""Responses out of an engine that makes chat completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.errors import ApiError
from api.responses.call import chat_call
from api.responses.output import whole_response
from api.responses.request import renamed, renamed_words, truncates
from api.responses.resource import ResponseDraft
from api.usage import TokenUsage
from engine_adapter.client.base import CHAT_PATH, EngineCall, EngineClient, EngineReply
from engine_adapter.client.encoding import wall_s
from engine_adapter.client.shortening import answered


async def respond(client: EngineClient, call: EngineCall) -> EngineReply:
    """Run a call to `RESPONSES_PATH` whose body `check_alone` let through; nothing is stored.

    Raises:
        ApiError: As `EngineClient.call`; it names the fields of this body.
    """
    created_at = int(wall_s())
    chat = replace(call, path=CHAT_PATH, body=chat_call(call.body), truncates=truncates(call.body))
    try:
        reply = await answered(client, chat)
    except ApiError as error:
        renamed(error, call.body)
        raise
    body = {**call.body, "store": False}
    draft = ResponseDraft(body, call.rid, created_at, not_held=call.served.not_held)
    return replace(reply, body=response_body(draft, reply, int(wall_s())))


def response_body(draft: ResponseDraft, reply: EngineReply, completed_at: int) -> dict[str, Any]:
    """The Response object of a chat reply, or its error under the names of the body's fields."""
    if not reply.ok:
        error = reply.body["error"]
        message, param = renamed_words(error["message"], error["param"], draft.body)
        return {"error": {**error, "message": message, "param": param}}
    (choice,) = reply.body["choices"]
    return whole_response(draft, choice, reply.usage or TokenUsage(), completed_at)
