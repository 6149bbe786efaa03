"""Refusing an upload before all of it was read, so that the sender gets to know why.

Closing a socket that still has unread bytes resets the connection, and the reset may overtake
the reply (row T-23). So the whole reply goes out at once, then what the sender still
sends is read and dropped for a short while, and then the connection is closed. Sending more than
that cannot hold us. The limits are wide because many clients send everything before they look,
and lose a reply that a reset follows.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.errors import PayloadTooLarge

LINGER_S: Final = 30.0
LINGER_BYTES: Final = 256 * 1024 * 1024


class LingeringResponse(Response):
    """A reply that the sender can read while it is still sending.

    Args:
        response: What to reply; its body is in memory.
        request: What is refused, read or not.
    """

    def __init__(self, response: Response, request: Request) -> None:
        super().__init__(response.body, response.status_code, dict(response.headers))
        self.headers["connection"] = "close"
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply, read on for a while, close."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        # The reply is complete by its content-length; the message stays open to keep the socket.
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _drop_the_rest(self._request)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drop_the_rest(request: Request) -> None:
    num_bytes = 0
    try:
        async with asyncio.timeout(LINGER_S):
            async for piece in request.stream():
                num_bytes += len(piece)
                if num_bytes >= LINGER_BYTES:
                    return
    except (TimeoutError, ClientDisconnect):
        return
    except PayloadTooLarge:
        return  # more than such a body may have
    except RuntimeError:
        return  # all of it had been read: the next message would be the sender's going away
