"""A hint names a URL that could have been meant, and nothing else."""

from __future__ import annotations

import pytest

from gateway.http.app import create_app
from gateway.http.unknown_urls import INSTEAD, nearest
from gateway.settings import GatewaySettings

ROUTES = [*create_app(GatewaySettings()).openapi()["paths"]]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chatcompletions", "/v1/completions"),
        ("/v1/model", "/v1/models"),
        ("/v1/batch/batch_1/cancel", "/v1/batches/{batch_id}/cancel"),
        ("/v1/file/file-1/contents", "/v1/files/{file_id}/content"),
        ("/v1/upload/upload_1/part", "/v1/uploads/{upload_id}/parts"),
        ("/v1/response/resp_1/input_item", "/v1/responses/{response_id}/input_items"),
        ("/healtz", "/healthz"),
    ],
)
def test_a_slip_is_understood(path: str, meant: str) -> None:
    assert nearest(path, ROUTES) == meant


@pytest.mark.parametrize(
    "path",
    [
        "/v1/engines/gpt-4/completions",
        "/v1/engines/gpt-4/complete",
        "/v1/engines/davinci/embeddings",
        "/v1/deployments/x/chat/completions",
        "/v1/users/u/cancel",
        "/v1/files/file-1/x/content",
        "/v1/generate",
        "/v1",
        "/",
        "",
    ],
)
def test_what_is_alike_in_its_end_alone_is_not_meant(path: str) -> None:
    assert nearest(path, ROUTES) == ""


def test_every_refused_api_has_no_route() -> None:
    served = {route.removeprefix("/v1").strip("/").partition("/")[0] for route in ROUTES}
    assert served.isdisjoint(INSTEAD)
