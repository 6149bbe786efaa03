"""Query strings: a parameter that a route does not read is refused, like a field of a body.

Official clients write a list as `include[]=a&include[]=b`, or with numbers in the brackets: these
are the parameter `include`.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.routing import APIRoute

from api import rules
from api.refused_fields import unknown_field
from api.responses.request import INCLUDABLE

Included = Annotated[list[str] | None, Query()]
"""`include` of a route that reads stored items: they are always shown whole."""

TAKEN: Final = frozenset({"api-version", "include_obfuscation"})
"""Clients send them, and no answer depends on them."""
LISTS: Final = {"include": INCLUDABLE}
"""Parameters that are lists, and what may be in them."""
_ELEMENT: Final = re.compile(r"\[\d*\]$")


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
    for written, value in request.query_params.multi_items():
        name = written
        if _ELEMENT.search(written) and written.partition("[")[0] in LISTS:
            name = written.partition("[")[0]
        if name not in known and name not in TAKEN and value:
            raise unknown_field(name, known)
        if name in LISTS and value:
            rules.one_of(*LISTS[name])(name, value)
