"""The playground: one chat, served exactly as `/v1/chat/completions` serves it.

It is asked under the operator's own key: its limits, its usage, its project.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from engine_adapter.client.base import CHAT_PATH
from engine_adapter.wire.errors import ApiError
from gateway.admission import json_body
from gateway.auth.principal import Principal
from gateway.dashboard.access import CheckedForm, OperatorDep, ResourcesDep
from gateway.dashboard.pages import page
from gateway.error_handlers import error_response
from gateway.serving import COMPLETIONS, deliver

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
    try:
        return await deliver(
            request,
            Principal.of(admin.key, admin.project),
            CHAT_PATH,
            await json_body(request),
            COMPLETIONS,
            resources.prompt_parts,
        )
    except ApiError as refused:
        return error_response(refused)
