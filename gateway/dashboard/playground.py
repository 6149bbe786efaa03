"""The playground: one chat, served exactly as `/v1/chat/completions` serves it.

It is asked under the operator's own key: its limits, its usage, its project.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.errors import ApiError
from engine_adapter.client.base import CHAT_PATH
from gateway.auth.principal import Principal
from gateway.dashboard.access import CheckedForm, OperatorDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.http.error_handlers import error_response
from gateway.prompts.admission import checked_body, raw_body
from gateway.prompts.serving import COMPLETIONS, deliver

router = APIRouter()


@router.get("/playground")
async def playground_page(
    request: Request, resources: ResourcesDep, admin: OperatorDep
) -> Response:
    """The form."""
    models = [model.id for model in resources.engine_pool.models() if model.up]
    return page(request, resources, admin.session, "playground.html", admin=admin, models=models)


@router.post("/playground", dependencies=[CheckedForm])
async def ask(request: Request, resources: ResourcesDep, admin: OperatorDep) -> Response:
    """The answer, as the API gives it; errors have the API's form, too."""
    parts = resources.prompt_parts
    try:
        entry = await parts.entrance.enter(request, Principal.of(admin.key, admin.project))
        try:
            body = checked_body(await raw_body(request), CHAT_PATH)
            return await deliver(request, entry, CHAT_PATH, body, COMPLETIONS, parts)
        finally:
            await entry.give_back()
    except ApiError as refused:
        return error_response(refused)
