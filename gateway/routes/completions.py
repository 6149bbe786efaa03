"""`POST /completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from engine_adapter.client.base import COMPLETIONS_PATH
from gateway.http.direct_route import DirectRoute
from gateway.prompts.serving import answer
from gateway.routes.openapi import json_request
from gateway.routes.shapes import COMPLETION_REQUEST

router = APIRouter(tags=["completions"], route_class=DirectRoute)


@router.post("/completions", openapi_extra=json_request(COMPLETION_REQUEST))
async def create_completion(request: Request) -> Response:
    """Continue one or more prompts, whole or as a stream."""
    return answer(request, COMPLETIONS_PATH)
