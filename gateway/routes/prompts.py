"""`POST /chat/completions`, `/completions`, `/embeddings` and `/responses`: an answer each."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH
from gateway.http.direct_route import DirectRoute
from gateway.prompts.serving import answer
from gateway.responses.serving import answer_response
from gateway.routes.openapi import json_request
from gateway.routes.shapes import (
    CHAT_REQUEST,
    COMPLETION_REQUEST,
    EMBEDDINGS_REQUEST,
    RESPONSE_REQUEST,
)

router = APIRouter(route_class=DirectRoute)


@router.post("/chat/completions", tags=["chat"], openapi_extra=json_request(CHAT_REQUEST))
async def create_chat_completion(request: Request) -> Response:
    """Answer a conversation, whole or as a stream."""
    return answer(request, CHAT_PATH)


@router.post("/completions", tags=["completions"], openapi_extra=json_request(COMPLETION_REQUEST))
async def create_completion(request: Request) -> Response:
    """Continue one or more prompts, whole or as a stream."""
    return answer(request, COMPLETIONS_PATH)


@router.post("/embeddings", tags=["embeddings"], openapi_extra=json_request(EMBEDDINGS_REQUEST))
async def create_embedding(request: Request) -> Response:
    """The vectors of one or more texts, as numbers or base64."""
    return answer(request, EMBEDDINGS_PATH)


@router.post("/responses", tags=["responses"], openapi_extra=json_request(RESPONSE_REQUEST))
async def create_response(request: Request) -> Response:
    """Answer text or items, whole or as a stream of typed events."""
    return answer_response(request)
