"""What a request asks for is had on the event loop."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount

from gateway.http.app import create_app
from gateway.settings import GatewaySettings


def api_routes(routes: Sequence[BaseRoute]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        # What is mounted, and what was included, which FastAPI keeps as it was.
        within = route if isinstance(route, Mount) else getattr(route, "original_router", None)
        if within is not None:
            yield from api_routes(within.routes)


def calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for one in dependant.dependencies:
        yield from calls(one)


def test_no_route_and_nothing_it_asks_for_runs_in_a_thread_that_all_share() -> None:
    routes = list(api_routes(create_app(GatewaySettings()).routes))
    assert {"/batches", "/readyz", "/login"} <= {route.path for route in routes}
    asked = {call for route in routes for call in calls(route.dependant)}
    assert [
        call
        for call in asked
        if not inspect.iscoroutinefunction(call) and not inspect.isasyncgenfunction(call)
    ] == []
