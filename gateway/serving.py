"""One chat, completion or embeddings request from its body to its response."""

from __future__ import annotations

from typing import cast

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from batch.clock import Clock
from engine_adapter.client.pool import EnginePool
from engine_adapter.wire.errors import EngineNotReached
from gateway.admission import Admission, json_body
from gateway.answering import answer
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.bill import Bill
from gateway.disconnect import ClientGone, while_connected
from gateway.limits.limiter import RateLimiter
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.streaming import StreamedReply

CLIENT_CLOSED_REQUEST = 499


async def serve(request: Request, principal: Principal, path: str) -> Response:
    """Serve a request with the app's resources; the caller is known already."""
    state = request.app.state
    settings = cast(GatewaySettings, state.settings)
    admission = cast(Admission, state.admission)
    metrics = cast(Metrics, state.metrics)
    try:
        body = await json_body(request)
    except ClientDisconnect:
        metrics.disconnects.inc()
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    admitted = admission.admit(
        path,
        body,
        request_id=request.state.request_id,
        timeout_s=settings.request_timeout_s,
    )
    created = int(cast(Clock, state.clock).now().timestamp())
    engines = cast(EnginePool, state.engines)
    limiter = cast(RateLimiter, state.limiter)
    bill = Bill(
        admitted,
        principal,
        await limiter.reserve(principal, admitted.tokens),
        usage=cast(UsageRecorder, state.usage),
        limiter=limiter,
    )
    keys = cast(KeyRing, state.keys)
    if admitted.stream:
        return StreamedReply(
            admitted,
            engines=engines,
            admission=admission,
            bill=bill,
            metrics=metrics,
            keys=keys,
            principal=principal,
            created=created,
            keep_alive_s=settings.keep_alive_s,
            idle_timeout_s=settings.request_timeout_s,
        )

    async def work() -> Response:
        member = admitted.member
        while True:
            try:
                with engines.using(member) as client:
                    return await keys.while_usable(principal, answer(admitted, client, created))
            except EngineNotReached:
                # It never heard of the request and is left out now: another one may serve it.
                if member.open:
                    raise
                member = engines.pick(admitted.model, admitted.path)

    try:
        async with admission.room(admitted):
            response = await while_connected(request.receive, work())
    except ClientGone:
        metrics.disconnects.inc()
        response = Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        bill.settle()
    response.headers.update(bill.headers)
    return response
