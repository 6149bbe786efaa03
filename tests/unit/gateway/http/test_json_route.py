"""Every body that is a model is read by the rules of the others."""

from __future__ import annotations

from fastapi.routing import APIRoute

from gateway.http.app import API_ROUTERS, PLAIN_ROUTERS
from gateway.http.json_route import JsonRoute


def test_no_body_is_read_by_the_framework() -> None:
    with_body = [
        route
        for router in (*API_ROUTERS, *PLAIN_ROUTERS)
        for route in router.routes
        if isinstance(route, APIRoute) and route.body_field is not None
    ]
    assert len(with_body) > 8
    assert [route.path for route in with_body if not isinstance(route, JsonRoute)] == []
