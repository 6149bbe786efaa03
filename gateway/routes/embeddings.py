"""`POST /embeddings`, where the engine that serves the model makes embeddings."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from engine_adapter.client.base import EMBEDDINGS_PATH
from gateway.http.direct_route import DirectRoute
from gateway.prompts.serving import answer
from gateway.routes.openapi import json_request
from gateway.routes.shapes import EMBEDDINGS_REQUEST

router = APIRouter(tags=["embeddings"], route_class=DirectRoute)


@router.post("/embeddings", openapi_extra=json_request(EMBEDDINGS_REQUEST))
async def create_embedding(request: Request) -> Response:
    """The vectors of one or more texts, as numbers or base64."""
    return answer(request, EMBEDDINGS_PATH)
