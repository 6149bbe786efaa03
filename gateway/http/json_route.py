"""Routes whose body is a model: it is read by the same rules as the body of a prompt.

The framework's own reader takes NaN, halves of surrogate pairs and any depth, and says of what it
cannot read no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from api.json_input import read_object


class _JsonRequest(Request):
    async def json(self) -> Any:
        """The body; an error of it is met by `error_handlers`.

        Raises:
            InvalidRequest: It cannot be read, or is no object.
        """
        return read_object(await self.body())


class JsonRoute(APIRoute):
    """`APIRouter(route_class=JsonRoute)`."""

    request_class: type[Request] = _JsonRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        answer = super().get_route_handler()

        async def answer_read(request: Request) -> Response:
            return await answer(self.request_class(request.scope, request.receive))

        return answer_read
