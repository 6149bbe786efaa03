"""`POST /responses`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.http.direct_route import DirectRoute
from gateway.responses.serving import answer_response
from gateway.routes.openapi import json_request
from gateway.routes.shapes import RESPONSE_REQUEST

router = APIRouter(tags=["responses"], route_class=DirectRoute)


@router.post("/responses", openapi_extra=json_request(RESPONSE_REQUEST))
async def create_response(request: Request) -> Response:
    """Answer text or items, whole or as a stream of typed events."""
    return answer_response(request)
