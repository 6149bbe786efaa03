"""The playground: one chat, served exactly as `/v1/chat/completions` serves it.

It is asked under the operator's own key: its limits, its usage, its project.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.errors import ApiError
from engine_adapter.client.base import CHAT_PATH
from gateway.auth.principal import Principal
from gateway.dashboard.access import CheckedForm, OperatorDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.http.error_handlers import error_response
from gateway.prompts.serving import Answer, asked

router = APIRouter()


@router.get("/playground")
async def playground_page(
    request: Request, resources: ResourcesDep, admin: OperatorDep
) -> Response:
    """The form, with the models that can be asked now."""
    models = [model.id for model in resources.engine_pool.models() if model.up]
    return page(request, resources, admin.session, "playground.html", admin=admin, models=models)


@router.post("/playground", dependencies=[CheckedForm])
async def ask(request: Request, resources: ResourcesDep, admin: OperatorDep) -> Response:
    """The answer, as the API gives it; errors have the API's form, too."""

    async def caller(_: Request) -> Principal:
        return Principal.of(admin.key, admin.project)

    return _Played(request, partial(asked, CHAT_PATH), resources.prompt_parts, caller)


class _Played(Answer):
    """An answer whose refusal is no page of the dashboard."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except ApiError as refused:
            await error_response(refused)(scope, receive, send)
