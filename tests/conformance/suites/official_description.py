"""Writes an OpenAPI description of what we serve, made from the official client's own types.

`python official_description.py FILE`. The types are generated from OpenAI's description and keep
what is required, the enums and what may be null; their optional fields may be null, which is where
our batches follow OpenAI's service and not its text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from openai.types import (
    Batch,
    Completion,
    CreateEmbeddingResponse,
    EmbeddingCreateParams,
    FileDeleted,
    FileObject,
    Model,
)
from openai.types.batch_create_params import BatchCreateParams
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming as ChatParams,
)
from openai.types.completion_create_params import (
    CompletionCreateParamsNonStreaming as CompletionParams,
)
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

ANSWERS = (
    ChatCompletion,
    Completion,
    CreateEmbeddingResponse,
    Model,
    FileObject,
    FileDeleted,
    Batch,
)
REQUESTS = {
    "ChatRequest": ChatParams,
    "CompletionRequest": CompletionParams,
    "EmbeddingRequest": EmbeddingCreateParams,
    "BatchRequest": BatchCreateParams,
}
REF = "#/components/schemas/{model}"


def ref(name: str) -> dict[str, str]:
    return {"$ref": REF.format(model=name)}


def page(name: str, *more: str) -> dict[str, Any]:
    """A list; `first_id` and `last_id` may be null where it is empty."""
    ids = {name: {"type": ["string", "null"]} for name in ("first_id", "last_id")}
    return {
        "type": "object",
        "required": ["object", "data", *more],
        "properties": {
            "object": {"enum": ["list"]},
            "data": {"type": "array", "items": ref(name)},
            "has_more": {"type": "boolean"},
            **ids,
        },
    }


ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def operation(
    answer: dict[str, Any] | None, request: str | None = None, *ids: str
) -> dict[str, Any]:
    content = (
        {"application/octet-stream": {}}
        if answer is None
        else {"application/json": {"schema": answer}}
    )
    errors = {"content": {"application/json": {"schema": ref("Error")}}, "description": "refused"}
    made: dict[str, Any] = {
        "responses": {
            "200": {"description": "good", "content": content},
            "4XX": errors,
            "5XX": errors,
        },
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in ids
        ],
    }
    if request is not None:
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": ref(request)}},
        }
    return made


def description() -> dict[str, Any]:
    _, found = models_json_schema([(one, "validation") for one in ANSWERS], ref_template=REF)
    schemas: dict[str, Any] = {**found["$defs"], "Error": ERROR}
    for name, params in REQUESTS.items():
        # Names of their own: a request's `Function` is not a reply's.
        own = f"{name}.{{model}}"
        schema = TypeAdapter(params).json_schema(ref_template=REF.format(model=own))
        schemas |= {own.format(model=part): one for part, one in schema.pop("$defs", {}).items()}
        schemas[name] = schema
    upload = operation(ref("FileObject"))
    upload["requestBody"] = {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string"},
                    },
                }
            }
        },
    }
    paths = {
        "/v1/chat/completions": {"post": operation(ref("ChatCompletion"), "ChatRequest")},
        "/v1/completions": {"post": operation(ref("Completion"), "CompletionRequest")},
        "/v1/embeddings": {"post": operation(ref("CreateEmbeddingResponse"), "EmbeddingRequest")},
        "/v1/models": {"get": operation(page("Model"))},
        "/v1/models/{model}": {"get": operation(ref("Model"), None, "model")},
        "/v1/files": {
            "get": operation(page("FileObject", "has_more", "first_id", "last_id")),
            "post": upload,
        },
        "/v1/files/{id}": {
            "get": operation(ref("FileObject"), None, "id"),
            "delete": operation(ref("FileDeleted"), None, "id"),
        },
        "/v1/files/{id}/content": {"get": operation(None, None, "id")},
        "/v1/batches": {
            "get": operation(page("Batch", "has_more")),
            "post": operation(ref("Batch"), "BatchRequest"),
        },
        "/v1/batches/{id}": {"get": operation(ref("Batch"), None, "id")},
        "/v1/batches/{id}/cancel": {"post": operation(ref("Batch"), None, "id")},
        # Said wrongly on purpose: a proxy that finds nothing here would find nothing anywhere.
        "/healthz": {"get": operation({"type": "object", "required": ["never there"]})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "what is served of the OpenAI API", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(description()))
