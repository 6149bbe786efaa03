"""The generated description says what holds for every route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.http.app import create_app


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return create_app().openapi()


def operations(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_errors_are_envelopes_and_never_422(description: dict[str, Any]) -> None:
    for name, operation in operations(description):
        assert "422" not in operation["responses"], name
        if "/v1/" in name:
            for status in ("4XX", "5XX"):
                schema = operation["responses"][status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}, name
    inner = description["components"]["schemas"]["Error"]["properties"]["error"]
    assert inner["required"] == ["message", "type", "param", "code"]
    assert "HTTPValidationError" not in str(description)


def test_a_key_is_asked_for_exactly_below_v1(description: dict[str, Any]) -> None:
    for name, operation in operations(description):
        assert ("security" in operation) == ("/v1/" in name), name
    assert description["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


def test_every_answer_has_a_content_type(description: dict[str, Any]) -> None:
    for name, operation in operations(description):
        assert operation["responses"]["200"].get("content"), name


@pytest.mark.parametrize(
    ("path", "required"),
    [
        ("/v1/chat/completions", ["model", "messages"]),
        ("/v1/completions", ["model", "prompt"]),
        ("/v1/embeddings", ["model", "input"]),
    ],
)
def test_bodies_that_are_read_by_hand(
    description: dict[str, Any], path: str, required: list[str]
) -> None:
    body = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["required"] == required


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "/v1/chat/completions"),
        ("post", "/v1/completions"),
        ("get", "/v1/batches/{batch_id}/results/stream"),
    ],
)
def test_a_stream_is_described_event_by_event(
    description: dict[str, Any], method: str, path: str
) -> None:
    content = description["paths"][path][method]["responses"]["200"]["content"]
    assert content["text/event-stream"]["itemSchema"]["required"] == ["data"]
    assert "schema" not in content["text/event-stream"]
