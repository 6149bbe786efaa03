"""One chat, completion or embeddings request from its body to its response."""

from __future__ import annotations

from typing import cast

from fastapi import Request
from starlette.responses import Response

from batch.clock import Clock
from engine_adapter.client.pool import EnginePool
from engine_adapter.wire.usage import TokenUsage
from gateway.admission import Admission, Admitted, json_body
from gateway.answering import answer
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.disconnect import ClientGone, while_connected
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.streaming import StreamedReply

CLIENT_CLOSED_REQUEST = 499


async def serve(request: Request, principal: Principal, path: str) -> Response:
    """Serve a request with the app's resources; the caller is known already."""
    state = request.app.state
    settings = cast(GatewaySettings, state.settings)
    admission = cast(Admission, state.admission)
    admitted = admission.admit(
        path,
        await json_body(request),
        request_id=request.state.request_id,
        timeout_s=settings.request_timeout_s,
    )
    created = int(cast(Clock, state.clock).now().timestamp())
    engines = cast(EnginePool, state.engines)
    usage = cast(UsageRecorder, state.usage)
    metrics = cast(Metrics, state.metrics)
    if admitted.stream:
        return StreamedReply(
            admitted,
            engines=engines,
            admission=admission,
            usage=usage,
            metrics=metrics,
            principal=principal,
            created=created,
            keep_alive_s=settings.keep_alive_s,
            idle_timeout_s=settings.request_timeout_s,
        )

    async def work() -> tuple[Response, TokenUsage]:
        with engines.using(admitted.member) as client:
            return await answer(admitted, client, created)

    used = TokenUsage()
    try:
        async with admission.room(len(admitted.choices)):
            response, used = await while_connected(request.receive, work())
    except ClientGone:
        metrics.disconnects.inc()
        response = Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        _record(usage, principal, admitted, used)
    return response


def _record(
    usage: UsageRecorder, principal: Principal, admitted: Admitted, used: TokenUsage
) -> None:
    usage.add(principal, admitted.model, admitted.request_class, used)
