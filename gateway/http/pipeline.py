"""What every request passes between the server and its route; there is no other way.

    turn                not all that is ready in one turn of the event loop goes on (`LoopTurns`)
    request id, time    the response says both, and whose request it was (rows T-07 to T-09)
    span                where traces are on
    access line         one, and one measurement, when the response has ended
    last resort         what nobody expected: a plain 500, the stack in the log only
    CORS                for pages of other origins
    path                `/v1/models/` is `/v1/models`, without a redirect (row T-01)
    head                what of it is parsed further (`check_head`)
    body                how long it may be (`BodyLimits`)
    errors              in the one envelope, by the app's handlers

It is one callable and not one per line: a layer costs a request two more calls and a wrapper
around its answer.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, cast

from fastapi import Request
from opentelemetry.trace import Span, SpanKind
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import InternalError
from gateway.auth.keys import KeyRing
from gateway.http.access_log import AccessLog, route_of
from gateway.http.body_limit import BodyLimits
from gateway.http.error_handlers import error_response
from gateway.http.heads import check_head
from service import log_lines, tracing
from service.loop_turns import REQUEST, LoopTurns

DASHBOARD: Final = "/admin"
_VERSION: Final = (b"openai-version", b"2020-10-01")
_PARENT: Final = tracing.HEADER.encode()

Handler = Callable[[Request, Any], Awaitable[Response]]

logger = logging.getLogger(__name__)


class Pipeline:
    """The app behind all of the above.

    Args:
        app: The routes.
        handlers: What becomes of errors, by class: the app's.
        bodies: Limits of bodies.
        log: Where requests are noted.
        cors: Arguments of `CORSMiddleware`.
        turns: When a request goes on.
    """

    def __init__(
        self,
        app: ASGIApp,
        handlers: Mapping[Any, Any],
        bodies: BodyLimits,
        log: AccessLog,
        cors: Mapping[str, Any],
        turns: LoopTurns,
    ) -> None:
        self._app = app
        # All of them are ours (`install_error_handlers`), and asynchronous.
        self._handlers = cast("Mapping[Any, Handler]", handlers)
        self._bodies = bodies
        self._log = log
        self._turns = turns
        self._cors = CORSMiddleware(self._routed, **cors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            self._log.write()  # the lifespan has ended
            return
        if not self._turns.take(REQUEST):
            await self._turns.wait(_owner_of(scope), REQUEST)
        state = _begin(scope, send)
        process = scope["app"].state  # not the mounted app's, which takes its place in the scope

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                _add_headers(message, state, stopping=getattr(process, "stopping", False))
            await send(message)

        with _span(scope) as span:
            try:
                await self._cors(scope, receive, send_with_headers)
            except ClientDisconnect:
                pass  # gone before its body was read: there is nobody to answer
            except Exception:
                # Everything: a caller must get the envelope whatever the defect is.
                logger.exception("unexpected error in %s", state["request_id"])
                if state["status"]:
                    raise  # cuts the response off
                unexpected = InternalError("The server had an error while processing your request.")
                await error_response(unexpected)(scope, receive, send_with_headers)
            finally:
                self._log.note(scope, state["status"])
                if span is not None:
                    _describe(span, scope, state["status"])
                # These lead back to the request: a circle is left to the garbage collector.
                state.clear()

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == DASHBOARD:
            scope["path"] = f"{DASHBOARD}/"
        elif path.endswith("/") and path not in ("/", f"{DASHBOARD}/"):
            scope["path"] = path[:-1]
        body = self._bodies.of(scope, receive)
        try:
            check_head(scope)
            response = body.refusal(scope)
            if response is None:
                await self._app(scope, body.receive, send)
            else:
                await response(scope, receive, send)
        except Exception as error:
            handler = self._handler_of(error)
            if handler is None or scope["state"]["status"]:
                raise
            response = await handler(Request(scope, body.receive, send), error)
            await response(scope, body.receive, send)
        finally:
            body.release()

    def _handler_of(self, error: Exception) -> Handler | None:
        """The handler of an error's class, or else of the nearest class above it."""
        kinds = (self._handlers.get(kind) for kind in type(error).__mro__)
        return next((handler for handler in kinds if handler is not None), None)


def _owner_of(scope: Scope) -> str:
    """Whose a request is: a project's, if its key is known, else its address'."""
    keys: KeyRing | None = getattr(scope["app"].state, "keys", None)
    project_id = keys.project_of(Headers(scope=scope)) if keys is not None else ""
    return project_id or str((scope["client"] or ("",))[0])


def _begin(scope: Scope, send: Send) -> dict[str, Any]:
    """The request's state.

    Besides what its route adds: `request_id`, `started_at` (monotonic seconds), `status` (0 before
    the response begins), and `server_send`, the server's own `send`: the pipeline cares for a
    response's start only, so a stream may send its many body messages past it.
    """
    request_id = f"req_{secrets.token_hex(16)}"
    log_lines.request_id.set(request_id)
    state: dict[str, Any] = scope.setdefault("state", {})
    state["request_id"] = request_id
    state["started_at"] = time.perf_counter()
    state["status"] = 0
    state["server_send"] = send
    return state


def _add_headers(start: Message, state: Mapping[str, Any], *, stopping: bool) -> None:
    """Add to a response's start what every response says of its request."""
    took_ms = round((time.perf_counter() - state["started_at"]) * 1000)
    headers = [
        *start.get("headers", ()),
        (b"x-request-id", state["request_id"].encode()),
        (b"openai-processing-ms", b"%d" % took_ms),
        _VERSION,
    ]
    if "project_id" in state:
        # Whose request it was, whatever the request's own headers said.
        headers += [
            (b"openai-organization", state["organization_id"].encode()),
            (b"openai-project", state["project_id"].encode()),
        ]
    if stopping:
        # The next request is for another gateway: this one closes idle connections.
        headers.append((b"connection", b"close"))
    start["headers"] = headers


def _span(scope: Scope) -> AbstractContextManager[Span | None]:
    """The span of a request, below the caller's where it names one; none where traces are off."""
    if not tracing.is_on():
        return nullcontext()
    parent = next((value for name, value in scope["headers"] if name == _PARENT), b"")
    facts = {
        "http.request.method": scope["method"],
        "coserve.request_id": scope["state"]["request_id"],
    }
    return tracing.span(scope["method"], SpanKind.SERVER, facts, parent.decode("latin-1"))


def _describe(span: Span, scope: Scope, status: int) -> None:
    route = route_of(scope)
    span.update_name(f"{scope['method']} {route}")
    span.set_attribute("http.route", route)
    if status:
        span.set_attribute("http.response.status_code", status)
