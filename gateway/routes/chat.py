"""`POST /chat/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from engine_adapter.client.base import CHAT_PATH
from gateway.http.direct_route import DirectRoute
from gateway.prompts.serving import answer
from gateway.routes.openapi import json_request
from gateway.routes.shapes import CHAT_REQUEST

router = APIRouter(tags=["chat"], route_class=DirectRoute)


@router.post("/chat/completions", openapi_extra=json_request(CHAT_REQUEST))
async def create_chat_completion(request: Request) -> Response:
    """Answer a conversation, whole or as a stream."""
    return answer(request, CHAT_PATH)
