"""What nobody expected: a plain 500 in the one envelope, the stack in the log only."""

from __future__ import annotations

import logging

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import InternalError
from gateway.http.error_handlers import error_response

logger = logging.getLogger(__name__)


def unexpected(scope: Scope) -> Response:
    """The response to a request in whose way a defect came; call it in an `except` block."""
    logger.exception("unexpected error in %s", scope["state"].get("request_id"))
    return error_response(InternalError("The server had an error while processing your request."))


class BoundaryMiddleware:
    """The last to see an exception; a response that has begun is cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send_and_note)
        except ClientDisconnect:
            # Gone before its body was read: there is nobody to answer.
            return
        except Exception:
            # Everything: a caller must get the envelope whatever the defect is.
            response = unexpected(scope)
            if started:
                raise
            await response(scope, receive, send)
