"""`POST /responses`: the same way as a chat completion, in other shapes."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, cast

from fastapi import Request
from starlette.responses import Response

from api.chat_request import check_chat
from api.errors import ApiError
from api.responses.items import messages_of
from api.responses.request import chat_body, renamed
from engine_adapter.client.base import CHAT_PATH, RESPONSES_PATH
from gateway.auth.principal import Principal
from gateway.http.parsing import let_go
from gateway.prompts.admission import Admission
from gateway.prompts.serving import Answer, PromptParts, Question, parts_of, read_body
from gateway.responses import background
from gateway.responses.form import ResponseForm
from gateway.responses.shelf import ResponseStore
from store.session import Database


def shelf_of(request: Request, principal: Principal) -> ResponseStore:
    """What is stored of the caller's project."""
    parts, database = parts_of(request), cast(Database, request.app.state.database)
    lifetime = timedelta(days=parts.settings.response_days)
    return ResponseStore(database, parts.parsing, principal.project_id, lifetime)


def answer_response(request: Request) -> Response:
    """The answer to a request for a response, asked for as a chat completion."""
    return Answer(request, _asked, parts_of(request))


async def _asked(request: Request, parts: PromptParts, admission: Admission) -> Question | Response:
    principal = admission.principal
    body = await read_body(request, parts, principal, RESPONSES_PATH)
    shelf = shelf_of(request, principal)
    if body.get("background"):
        return await background.begin(request, admission, body, shelf)
    context = await shelf.context(body, is_brief=admission.is_brief)
    is_large = context.is_large

    def made() -> dict[str, Any]:
        items = chain(context.earlier, context.own)
        chat = chat_body(body, messages_of(items, body.get("instructions")))
        let_go(context.earlier)
        check_chat(chat)
        return chat

    try:
        chat = await parts.parsing.run(principal.project_id, made, is_large=is_large)
    except ApiError as error:
        raise renamed(error, body) from None
    form = ResponseForm(body, parts.clock, partial(shelf.keep, body, context))
    return Question(CHAT_PATH, chat, form, is_large)
