"""The way of a prompt from the server to its route, without the framework's layers.

Each layer costs a request two more calls and a wrapper around its answer. Here the same functions
are called one after the other. Whatever is not the plain case goes through the layers as everything
else does: other methods, pages of other origins (CORS), a slash too many, and all of it while
traces are on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.http.direct_route import DirectRoute
from gateway.http.middleware.access_log import AccessLog
from gateway.http.middleware.body_limit import BodyLimits
from gateway.http.middleware.boundary import unexpected
from gateway.http.middleware.request_id import add_headers, note_request
from gateway.http.transport import answer_of
from service import tracing

Handler = Callable[[Request, Any], Awaitable[Response]]


class PromptDoor:
    """Serves plain POSTs to the routes of prompts."""

    def __init__(
        self, app: FastAPI, routes: Sequence[DirectRoute], bodies: BodyLimits, log: AccessLog
    ) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes}
        self._bodies = bodies
        self._log = log

    def is_for(self, scope: Scope) -> bool:
        """Whether it serves this request."""
        return (
            scope["type"] == "http"
            and scope["method"] == "POST"
            and scope["path"] in self._routes
            and not tracing.is_on()
            and not any(name == b"origin" for name, _ in scope["headers"])
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self._app
        route = scope["route"] = self._routes[scope["path"]]
        note_request(scope, send)
        body = self._bodies.of(scope, receive)
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                stopping = getattr(self._app.state, "stopping", False)
                add_headers(message, scope, stopping=stopping)
            await send(message)

        request = Request(scope, body.receive, send_and_note)
        try:
            try:
                response = body.refusal(scope) or await route.endpoint(request)
                if type(response) is Response:
                    status = self._answer(scope, response)
                if not status:
                    await response(scope, body.receive, send_and_note)
            except ClientDisconnect:
                return  # gone before its body was read: there is nobody to answer
            except Exception as error:
                handler = self._handler_of(error)
                if handler is None or status:
                    raise
                response = await handler(request, error)
                await response(scope, body.receive, send_and_note)
        except Exception:
            # Everything: a caller must get the envelope whatever the defect is.
            response = unexpected(scope)
            if status:
                raise
            await response(scope, body.receive, send_and_note)
        finally:
            body.release()
            self._log.note(scope, status)

    def _answer(self, scope: Scope, response: Response) -> int:
        """Send a whole response in one piece; its status, or 0 where that is not possible."""
        answer = answer_of(scope)
        if answer is None:
            return 0
        start: Message = {"headers": response.raw_headers}
        add_headers(start, scope, stopping=getattr(self._app.state, "stopping", False))
        sent = answer(response.status_code, start["headers"], bytes(response.body))
        return response.status_code if sent else 0

    def _handler_of(self, error: Exception) -> Handler | None:
        """The app's handler of an error, as the framework finds it."""
        # All of them are ours (`install_error_handlers`), and asynchronous.
        handlers = cast("dict[Any, Handler]", self._app.exception_handlers)
        return next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
