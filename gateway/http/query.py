"""Query strings: a parameter that a route does not read is refused, like a field of a body."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.routing import APIRoute

from api.refused_fields import unknown_field

TAKEN: Final = frozenset({"api-version"})
"""Clients send them with every URL, and no answer depends on them."""


async def only_known(request: Request) -> None:
    """Refuse the first parameter that the request's route does not have.

    Raises:
        InvalidRequest: With its name as `param`.
    """
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    known: set[str] = set()
    if isinstance(route, APIRoute):
        known = {one.alias for one in route.dependant.query_params}
    for name, value in request.query_params.multi_items():
        if name not in known and name not in TAKEN and value:
            raise unknown_field(name, known)
