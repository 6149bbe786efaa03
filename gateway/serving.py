"""One request for an answer from its body to its response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from batch.clock import Clock
from engine_adapter.client.base import EngineClient
from engine_adapter.client.pool import EnginePool
from engine_adapter.wire.errors import EngineUnavailable
from gateway.admission import Admission, Admitted, json_body
from gateway.answering import answer
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.bill import Bill
from gateway.dependencies import principal_of
from gateway.disconnect import ClientGone, when_gone_of, while_connected
from gateway.failover import Failover
from gateway.limits.at_once import Place, RequestsAtOnce
from gateway.limits.limiter import RateLimiter, Reservation
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.stream_form import ChunkForm, StreamForm
from gateway.streaming import StreamedReply

CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What a prompt is served with; `app.state.prompt_parts`, one look for all of it."""

    settings: GatewaySettings
    admission: Admission
    metrics: Metrics
    clock: Clock
    engines: EnginePool
    limiter: RateLimiter
    at_once: RequestsAtOnce
    usage: UsageRecorder
    keys: KeyRing


class AnswerForm(Protocol):
    """What the endpoint makes of an engine's answers."""

    @property
    def truncates(self) -> bool:
        """Whether a conversation that is too long is sent without its beginning."""
        ...

    async def whole(self, admitted: Admitted, client: EngineClient, created: int) -> Response:
        """The response to a request that is not streamed."""
        ...

    def streamed(self, admitted: Admitted, created: int) -> StreamForm:
        """The form of the response to one that is."""
        ...


class CompletionForm:
    """Chat completions, completions and embeddings."""

    truncates: Final = False

    async def whole(self, admitted: Admitted, client: EngineClient, created: int) -> Response:
        """One body of all choices."""
        return await answer(admitted, client, created)

    def streamed(self, admitted: Admitted, created: int) -> StreamForm:
        """Chunks."""
        return ChunkForm(admitted, created)


COMPLETIONS: Final = CompletionForm()


def parts_of(request: Request) -> PromptParts:
    """The app's parts."""
    return cast(PromptParts, request.app.state.prompt_parts)


async def serve(request: Request, path: str) -> Response:
    """Serve a request with the app's parts; nothing is read before its caller is known."""
    principal = await principal_of(request)
    body = await read_body(request)
    if body is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return await deliver(request, principal, path, body, COMPLETIONS)


async def read_body(request: Request) -> dict[str, Any] | None:
    """The request's body as an object; none if its caller has gone away."""
    try:
        return await json_body(request)
    except ClientDisconnect:
        parts_of(request).metrics.disconnects.inc()
        return None


async def deliver(
    request: Request,
    principal: Principal,
    path: str,
    body: dict[str, Any],
    form: AnswerForm,
    parts: PromptParts | None = None,
) -> Response:
    """Admit a body, have engines answer it, and give the answer its form; by default in the app."""
    parts = parts or parts_of(request)
    settings, engines, keys = parts.settings, parts.engines, parts.keys
    admitted = parts.admission.admit(
        path,
        body,
        request_id=request.scope["state"]["request_id"],
        timeout_s=settings.request_timeout_s,
        principal=principal,
        truncates=form.truncates,
    )
    created = int(parts.clock.now().timestamp())
    bill = Bill(
        admitted,
        principal,
        *await _reserve(parts, principal, admitted.tokens),
        usage=parts.usage,
        limiter=parts.limiter,
    )
    failover = Failover(engines, admitted, retry_lost=settings.retry_lost)
    if admitted.stream:
        return StreamedReply(
            admitted,
            form.streamed(admitted, created),
            engines=engines,
            failover=failover,
            admission=parts.admission,
            bill=bill,
            metrics=parts.metrics,
            keys=keys,
            principal=principal,
            keep_alive_s=settings.keep_alive_s,
            idle_timeout_s=settings.request_timeout_s,
        )

    async def work() -> Response:
        while True:
            try:
                with engines.using(failover.route) as client:
                    return await keys.while_usable(principal, form.whole(admitted, client, created))
            except EngineUnavailable as error:
                failover.go_on(error)

    try:
        with parts.admission.room(admitted):
            response = await while_connected(request.receive, work(), when_gone_of(request.scope))
    except ClientGone:
        parts.metrics.disconnects.inc()
        response = Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        bill.settle()
    if bill.headers:
        response.headers.update(bill.headers)
    return response


async def _reserve(
    parts: PromptParts, principal: Principal, tokens: int
) -> tuple[Reservation, Place]:
    """What a request takes of its limits: all of it, or nothing."""
    place = await parts.at_once.enter(principal)
    try:
        return await parts.limiter.reserve(principal, tokens), place
    except BaseException:
        place.leave()
        raise
