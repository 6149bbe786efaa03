"""One request for an answer from its body to its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from api.errors import ApiError, EngineUnavailable
from engine_adapter.client.base import EngineClient
from engine_adapter.client.pool import EnginePool
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.dependencies import principal_of
from gateway.http.disconnect import ClientGone, when_gone_of, while_connected
from gateway.http.error_handlers import error_response
from gateway.http.middleware.body_limit import CountedBody
from gateway.http.parsing import Parsing
from gateway.http.query import only_known
from gateway.http.refusal import LingeringResponse
from gateway.limits.limiter import RateLimiter
from gateway.observability.metrics import Metrics
from gateway.prompts.admission import Admission, Admitted, checked_body, raw_body
from gateway.prompts.answering import answer
from gateway.prompts.bill import Bill
from gateway.prompts.entry import SMALL_BYTES, Entrance, Entry, announced
from gateway.prompts.failover import Failover
from gateway.prompts.quarantine import Quarantine
from gateway.prompts.stream_form import ChunkForm, StreamForm
from gateway.prompts.streaming import StreamedReply
from gateway.prompts.tiers import with_tier
from gateway.settings import GatewaySettings
from service.clock import Clock

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
    entrance: Entrance
    parsing: Parsing
    usage: UsageRecorder
    keys: KeyRing
    quarantine: Quarantine
    alias_tiers: Mapping[str, str]


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
        return ChunkForm(admitted, created)


COMPLETIONS: Final = CompletionForm()


def parts_of(request: Request) -> PromptParts:
    return cast(PromptParts, request.app.state.prompt_parts)


async def serve(request: Request, path: str) -> Response:
    """Serve a request with the app's parts."""

    async def answered(entry: Entry) -> Response:
        body = await read_body(request, entry.principal, path)
        return await deliver(request, entry, path, body, COMPLETIONS)

    return await entered(request, answered)


async def entered(request: Request, answered: Callable[[Entry], Awaitable[Response]]) -> Response:
    """Let a request in and answer it; nothing is read before its caller is known and may ask."""
    parts = parts_of(request)
    try:
        principal = await principal_of(request)
        await only_known(request)
        entry = await parts.entrance.enter(request, principal)
    except ApiError as refused:
        length = announced(request)
        if length is not None and length <= SMALL_BYTES:
            raise  # the connection goes on: the server drops so little by itself
        cast(CountedBody, request.scope["state"]["body"]).forget()
        return LingeringResponse(error_response(refused), request)
    try:
        return await answered(entry)
    except ClientDisconnect:
        parts.metrics.disconnects.inc()
        await entry.give_back()
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except BaseException:
        await entry.give_back()
        raise


async def read_body(request: Request, principal: Principal, path: str) -> dict[str, Any]:
    """The request's body, checked for its path and given its tier; a large one is parsed aside.

    Raises:
        InvalidRequest: It is not what it must be.
        ClientDisconnect: The caller has gone away.
    """
    raw = await raw_body(request)
    parts = parts_of(request)
    if len(raw) <= SMALL_BYTES:
        return with_tier(checked_body(raw, path), principal, parts.alias_tiers)
    if announced(request) is None:
        await parts.entrance.count_bytes(principal, len(raw))
    body = await parts.parsing.run(principal.project_id, partial(checked_body, raw, path))
    return with_tier(body, principal, parts.alias_tiers)


async def deliver(
    request: Request,
    entry: Entry,
    path: str,
    body: dict[str, Any],
    form: AnswerForm,
    parts: PromptParts | None = None,
) -> Response:
    """Admit a checked body, have engines answer it, and give the answer its form.

    Args:
        request: Whose answer it is.
        entry: What it took; taken over by the bill once it has its tokens.
        path: Of the engine.
        body: What was checked for that path.
        form: What is made of the answer.
        parts: By default the app's.
    """
    parts = parts or parts_of(request)
    principal = entry.principal
    settings, engines, keys = parts.settings, parts.engines, parts.keys
    admitted = parts.admission.admit(
        path,
        body,
        request_id=request.scope["state"]["request_id"],
        timeout_s=settings.request_timeout_s,
        principal=principal,
        truncates=form.truncates,
    )
    await parts.quarantine.check(admitted)
    created = int(parts.clock.now().timestamp())
    bill = Bill(
        admitted,
        principal,
        await entry.reserve(admitted.tokens),
        entry.hand_over(),
        usage=parts.usage,
        limiter=parts.limiter,
    )
    failover = Failover(engines, admitted, parts.quarantine, retry_lost=settings.retry_lost)
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
                    made = await keys.while_usable(principal, form.whole(admitted, client, created))
            except EngineUnavailable as error:
                await failover.go_on(error)
                continue
            if made.status_code < HTTPStatus.BAD_REQUEST:
                await failover.end()
            return made

    try:
        with parts.admission.room(admitted):
            response = await while_connected(request.receive, work(), when_gone_of(request.scope))
    except ClientGone:
        parts.metrics.disconnects.inc()
        response = Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        bill.settle()
    response.headers.update({**bill.headers, **admitted.told_headers})
    return response
