"""One request for a response from its body to its answer."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

from fastapi import Request
from starlette.responses import Response

from api.chat_request import check_chat
from api.errors import ApiError
from api.responses.items import messages_of
from api.responses.request import chat_body, renamed
from engine_adapter.client.base import CHAT_PATH, RESPONSES_PATH
from gateway.auth.principal import Principal
from gateway.prompts.entry import Entry
from gateway.prompts.serving import deliver, entered, parts_of, read_body
from gateway.responses import background
from gateway.responses.form import ResponseForm
from gateway.responses.shelf import ResponseStore
from store.session import Database

FEW_ITEMS: Final = 200
"""So many are made messages of where they are; more beside the event loop."""


def shelf_of(request: Request, principal: Principal) -> ResponseStore:
    """What is stored of the caller's project."""
    lifetime = timedelta(days=parts_of(request).settings.response_days)
    return ResponseStore(cast(Database, request.app.state.database), principal.project_id, lifetime)


async def serve_response(request: Request) -> Response:
    """Serve a request as a chat call: the same admission, class, bill and limits."""
    return await entered(request, partial(_answered, request))


async def _answered(request: Request, entry: Entry) -> Response:
    parts, principal = parts_of(request), entry.principal
    body = await read_body(request, principal, RESPONSES_PATH)
    shelf = shelf_of(request, principal)
    if body.get("background"):
        return await background.begin(request, entry, body, shelf)
    context = await shelf.context(body)
    items = (*context.earlier, *context.own)

    def made() -> dict[str, Any]:
        chat = chat_body(body, messages_of(items, body.get("instructions")))
        check_chat(chat)
        return chat

    form = ResponseForm(body, parts.clock, partial(shelf.keep, body, context))
    try:
        if len(items) <= FEW_ITEMS:
            chat = made()
        else:
            chat = await parts.parsing.run(principal.project_id, made)
        return await deliver(request, entry, CHAT_PATH, chat, form)
    except ApiError as error:
        raise renamed(error) from None
