"""A request for an answer, from its head to its last byte.

who asks, and may it                            `caller_of`
  ▼
enter ── limits that the head tells             `AdmissionControl`; held from here on
  ▼
the body: read, parsed, checked                 `read_body`
  ▼
its class, its engine, its calls                `prompt_of`
  ▼
begin ── room for the calls, tokens             `Admission`
  ▼
one engine, another if it is lost               `Failover`
  ▼
whole or streamed, in the endpoint's form       `AnswerForm`, `StreamedAnswer`
  ▼
what it used is billed, all else given back     the end of the `Admission`
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.errors import ApiError
from engine_adapter.client.estimate import weigh
from engine_adapter.client.pool import EnginePool
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.dependencies import principal_of
from gateway.http.body_limit import CountedBody
from gateway.http.disconnect import ClientGone, when_gone_of, while_connected
from gateway.http.error_handlers import error_response
from gateway.http.parsing import BRIEF_BYTES, Parsing
from gateway.http.query import only_known
from gateway.http.refusal import LingeringResponse
from gateway.observability.metrics import Metrics
from gateway.prompts.admission import Admission, AdmissionControl
from gateway.prompts.body import SMALL_BYTES, announced, checked_body, raw_body
from gateway.prompts.failover import Failover
from gateway.prompts.forms import COMPLETIONS, AnswerForm
from gateway.prompts.prompt import Prompt, model_of, prompt_of
from gateway.prompts.quarantine import Quarantine
from gateway.prompts.streaming import EventStream, StreamedAnswer
from gateway.prompts.tiers import with_tier
from gateway.settings import GatewaySettings
from service.clock import Clock

CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What a prompt is served with; `app.state.prompt_parts`, one look for all of it."""

    settings: GatewaySettings
    admission: AdmissionControl
    metrics: Metrics
    clock: Clock
    engines: EnginePool
    parsing: Parsing
    keys: KeyRing
    quarantine: Quarantine
    alias_tiers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """What an endpoint asks engines.

    Attributes:
        path: Of the engine.
        body: What was checked for that path.
        form: What is made of the answer.
        is_large: The body is not brief: what is made of it is made beside the event loop.
    """

    path: str
    body: dict[str, Any]
    form: AnswerForm
    is_large: bool


Ask = Callable[[Request, PromptParts, Admission], Awaitable[Question | Response]]
"""Reads a request that was let in; a response ends it here."""

Caller = Callable[[Request], Awaitable[Principal]]


def parts_of(request: Request) -> PromptParts:
    return cast(PromptParts, request.app.state.prompt_parts)


def answer(request: Request, path: str) -> Response:
    """The answer to a chat completion, a completion or embeddings."""
    return Answer(request, partial(asked, path), parts_of(request))


async def asked(path: str, request: Request, parts: PromptParts, admission: Admission) -> Question:
    """What the body of a request for one of these paths asks."""
    body = await read_body(request, parts, admission.principal, path)
    return Question(path, body, COMPLETIONS, is_large=not admission.is_brief)


async def caller_of(request: Request) -> Principal:
    """Who asks.

    Raises:
        ApiError: The request may not be made, whatever its body says.
    """
    principal = await principal_of(request)
    await only_known(request)
    return principal


class Answer(Response):
    """The answer to one request; it is made while it is sent, so that one block holds everything.

    Args:
        request: The request; its body was not read.
        ask: What reads it.
        parts: What it is served with.
        caller: Who asks.
    """

    background = None

    def __init__(
        self, request: Request, ask: Ask, parts: PromptParts, caller: Caller = caller_of
    ) -> None:
        self._request = request
        self._ask = ask
        self._parts = parts
        self._caller = caller
        self._events: EventStream | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, and answer it; a whole answer leaves when nothing is held any more.

        Raises:
            ApiError: It was refused; nothing was sent.
        """
        response: Response | None
        try:
            response = await self._served(send)
        except (ClientDisconnect, ClientGone):
            self._parts.metrics.disconnects.inc()
            if self._events is not None and self._events.started:
                return
            response = Response(status_code=CLIENT_CLOSED_REQUEST)
        if response is not None:
            await response(scope, receive, send)

    async def _served(self, send: Send) -> Response | None:
        """The response, or none where it was streamed."""
        request, parts = self._request, self._parts
        try:
            principal = await self._caller(request)
            admission = await parts.admission.enter(principal, announced(request))
        except ApiError as refused:
            return _unread(request, refused)
        async with admission:
            question = await self._ask(request, parts, admission)
            if isinstance(question, Response):
                return question
            try:
                return await self._answered(question, admission, send)
            except ApiError as error:
                raise question.form.refusal(error) from None
            finally:
                if question.is_large:
                    parts.parsing.forget(question.body)

    async def _answered(
        self, question: Question, admission: Admission, send: Send
    ) -> Response | None:
        request, parts, form = self._request, self._parts, question.form
        principal, is_large = admission.principal, question.is_large
        sizes = parts.engines.sizes_of(model_of(parts.engines, question.body, principal))
        weighed = await parts.parsing.run(
            principal.project_id,
            partial(
                weigh,
                question.path,
                question.body,
                sizes,
                is_large=is_large,
                is_routed=parts.engines.routes_by_prompt,
            ),
            is_large=is_large,
        )
        prompt = prompt_of(
            parts.engines,
            weighed,
            principal,
            request_id=request.scope["state"]["request_id"],
            timeout_s=parts.settings.request_timeout_s,
            truncates=form.truncates,
        )
        await parts.quarantine.check(prompt)
        guarded = partial(parts.keys.while_usable, principal)
        gone = when_gone_of(request.scope)
        created = int(parts.clock.now().timestamp())
        if prompt.stream:
            self._events = EventStream(
                request.scope,
                send,
                partial(_headers, admission, prompt),
                parts.settings.keep_alive_s,
            )
        if prompt.may_wait:
            try:
                begun = guarded(self._begun(prompt, admission))
                prompt = await while_connected(request.receive, begun, gone)
            except ApiError as error:
                if self._events is None or not self._events.started:
                    raise
                last = await form.streamed(prompt, created).fail(error)
                await self._events.send(last, more=False)
                return None
        else:
            prompt = await admission.begin(prompt)
        failover = Failover(
            parts.engines,
            prompt,
            parts.quarantine,
            parts.metrics.chat,
            may_retry=parts.settings.retry_on_engine_loss,
        )
        work: Coroutine[Any, Any, Response | None]
        if self._events is not None:
            streamed = StreamedAnswer(
                prompt,
                form.streamed(prompt, created),
                failover,
                parts.metrics,
                parts.settings,
                self._events,
            )
            work = streamed.run(request.scope["state"]["started_at"], guarded)
        else:
            work = self._whole(prompt, form, failover, admission, created)
        return await while_connected(request.receive, work, gone)

    async def _begun(self, prompt: Prompt, admission: Admission) -> Prompt:
        """Begin a prompt that may wait in line; a stream shows meanwhile that it is alive."""
        begun = admission.begin(prompt)
        if self._events is None:
            return await begun
        return await self._events.alive_while(begun, lambda: admission.comment)

    async def _whole(
        self,
        prompt: Prompt,
        form: AnswerForm,
        failover: Failover,
        admission: Admission,
        created: int,
    ) -> Response:
        attempt = failover.run(lambda client: form.whole(prompt, client, created))
        response = await self._parts.keys.while_usable(admission.principal, attempt)
        if response.status_code < HTTPStatus.BAD_REQUEST:
            if failover.chat is not None:
                failover.chat.note_whole(time.monotonic(), prompt.used().completion_tokens)
            await failover.end()
        response.headers.update(_headers(admission, prompt))
        return response


def _headers(admission: Admission, prompt: Prompt) -> dict[str, str]:
    """What an answer's headers say besides those of every answer."""
    return {**admission.headers, **prompt.told_headers}


async def read_body(
    request: Request, parts: PromptParts, principal: Principal, path: str
) -> dict[str, Any]:
    """The request's body, checked for its path and given its tier; parsed aside unless brief.

    Raises:
        InvalidRequest: It is not what it must be.
        ClientDisconnect: The caller has gone away.
    """
    raw = await raw_body(request)
    if len(raw) <= BRIEF_BYTES:
        return with_tier(checked_body(raw, path), principal, parts.alias_tiers)
    if announced(request) is None:
        await parts.admission.count_bytes(principal, len(raw))
    body = await parts.parsing.run(principal.project_id, partial(checked_body, raw, path))
    return with_tier(body, principal, parts.alias_tiers)


def _unread(request: Request, refused: ApiError) -> Response:
    """The refusal of a request whose body was not read; raised where little of it is to come."""
    length = announced(request)
    if length is not None and length <= SMALL_BYTES:
        raise refused  # the connection goes on: the server drops so little by itself
    cast(CountedBody, request.scope["state"]["body"]).forget()
    return LingeringResponse(error_response(refused), request)
