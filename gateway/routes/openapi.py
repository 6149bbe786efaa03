"""The generated description, `/openapi.json`: what routes cannot say of themselves."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.routes import shapes
from gateway.routes.shapes import Shape

_JSON: Final = "application/json"
# `itemSchema` is one event of the stream: OpenAPI 3.2, which tools and FastAPI know in 3.1 too.
_EVENTS: Final[Shape] = {
    "text/event-stream": {
        "itemSchema": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("data", "event", "id")},
            "required": ["data"],
        }
    }
}

# Answers that are made without a pydantic model, by path and method.
_ANSWERS: Final[dict[tuple[str, str], Shape]] = {
    ("/v1/chat/completions", "post"): {_JSON: {"schema": shapes.CHAT_COMPLETION}, **_EVENTS},
    ("/v1/completions", "post"): {_JSON: {"schema": shapes.COMPLETION}, **_EVENTS},
    ("/v1/embeddings", "post"): {_JSON: {"schema": shapes.EMBEDDINGS}},
    ("/v1/responses", "post"): {_JSON: {"schema": shapes.RESPONSE}, **_EVENTS},
    ("/v1/responses/{response_id}", "get"): {_JSON: {"schema": shapes.RESPONSE}, **_EVENTS},
    ("/v1/responses/{response_id}/cancel", "post"): {_JSON: {"schema": shapes.RESPONSE}},
    ("/v1/models", "get"): {_JSON: {"schema": shapes.MODELS}},
    ("/v1/models/{model_id}", "get"): {_JSON: {"schema": shapes.MODEL}},
    ("/v1/files/{file_id}/content", "get"): {"application/octet-stream": {}},
    ("/v1/batches/{batch_id}/results", "get"): {"application/jsonl": {}},
    ("/v1/batches/{batch_id}/results/stream", "get"): _EVENTS,
    ("/readyz", "get"): {_JSON: {"schema": shapes.READINESS}},
    ("/statusz", "get"): {_JSON: {"schema": shapes.STATUS}},
    ("/metrics", "get"): {"text/plain": {"schema": {"type": "string"}}},
}
_DEFECTS: Final = ("HTTPValidationError", "ValidationError")


def json_request(schema: Shape) -> dict[str, Any]:
    """The body of a route that reads it by itself."""
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema}}}}


def describe(app: FastAPI) -> None:
    """Have `app.openapi()` tell keys, error envelopes and hand-made answers of every route."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(
                get_openapi(title=app.title, version=app.version, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]  # FastAPI's documented way


def _completed(made: dict[str, Any]) -> dict[str, Any]:
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in _DEFECTS:
        schemas.pop(name, None)
    schemas["Error"] = shapes.ERROR
    components["securitySchemes"] = {"ApiKey": {"type": "http", "scheme": "bearer"}}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return made


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Our answers are never 422 (row T-13); every error is the envelope (T-11)."""
    responses = operation["responses"]
    responses.pop("422", None)
    answer = _ANSWERS.get((path, method))
    if answer is not None:
        responses["200"]["content"] = answer
    if path.startswith("/v1/"):
        operation["security"] = [{"ApiKey": []}]
        envelope = {"schema": {"$ref": "#/components/schemas/Error"}}
        for status, what in (("4XX", "The request is refused."), ("5XX", "It cannot be served.")):
            responses[status] = {"description": what, "content": {_JSON: envelope}}
    elif path in ("/readyz", "/statusz"):
        responses["503"] = {**responses["200"], "description": "It is not."}
        if "parameters" in operation:
            refused = {"schema": {"$ref": "#/components/schemas/Error"}}
            responses["400"] = {"description": "A parameter is wrong.", "content": {_JSON: refused}}
