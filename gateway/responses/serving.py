"""One request for a response from its body to its answer."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import cast

from fastapi import Request
from starlette.responses import Response

from engine_adapter.client.base import CHAT_PATH
from engine_adapter.wire.errors import ApiError
from engine_adapter.wire.responses.items import messages_of
from engine_adapter.wire.responses.request import chat_body, check_response, renamed
from gateway.auth.principal import Principal
from gateway.dependencies import principal_of
from gateway.responses import background
from gateway.responses.form import ResponseForm
from gateway.responses.shelf import Shelf
from gateway.serving import CLIENT_CLOSED_REQUEST, deliver, parts_of, read_body
from store.session import Database


def shelf_of(request: Request, principal: Principal) -> Shelf:
    """What is stored of the caller's project."""
    lifetime = timedelta(days=parts_of(request).settings.response_days)
    return Shelf(cast(Database, request.app.state.database), principal.project_id, lifetime)


async def serve_response(request: Request) -> Response:
    """Serve a request as a chat call: the same admission, class, bill and limits."""
    principal = await principal_of(request)
    body = await read_body(request)
    if body is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    check_response(body)
    shelf = shelf_of(request, principal)
    if body.get("background"):
        return await background.begin(request, principal, body, shelf)
    context = await shelf.context(body)
    messages = messages_of((*context.earlier, *context.own), body.get("instructions"))
    form = ResponseForm(body, parts_of(request).clock, partial(shelf.keep, body, context))
    try:
        return await deliver(request, principal, CHAT_PATH, chat_body(body, messages), form)
    except ApiError as error:
        raise renamed(error) from None
