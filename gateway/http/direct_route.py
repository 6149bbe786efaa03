"""Routes whose endpoint takes the request alone, straight from the router.

FastAPI looks for a body model, opens two exit stacks and solves the dependencies of every request:
for a relayed request that took as long as relaying it. Routes of prompts need none
of it: they read their body by themselves and ask for their caller (`principal_of`). They are
described like every other route, and their errors meet the same handlers.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send


class DirectRoute(APIRoute):
    """`APIRouter(route_class=DirectRoute)`: endpoints are `async def endpoint(request)`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI, once the route was chosen."""
        if self.methods is not None and scope["method"] not in self.methods:
            await super().handle(scope, receive, send)  # refuses the method
            return
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
