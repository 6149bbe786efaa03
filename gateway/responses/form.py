"""What a response looks like, whole and streamed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response

from api.errors import ApiError, Overloaded
from api.json_output import dump, let_go_of_lists
from api.responses.request import renamed, truncates
from api.responses.resource import ResponseDraft
from api.responses.writer import ResponseWriter
from api.tool_calls import offer_of
from engine_adapter.client.base import EngineCall, EngineClient
from engine_adapter.client.long_answers import aside
from engine_adapter.client.responding import response_body
from engine_adapter.client.shortening import answered
from gateway.prompts.forms import JSON, StreamForm, StreamWriter, dumped_at_last, failed
from gateway.prompts.prompt import Prompt
from gateway.responses.shelf import FEW_TOKENS
from service.clock import Clock

Keep = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Stores a response that has ended."""


class ResponseForm:
    """The form of the answer to one checked body."""

    def __init__(self, body: dict[str, Any], clock: Clock, keep: Keep) -> None:
        self.truncates = truncates(body)
        self._body = body
        self._clock = clock
        self._keep = keep

    async def whole(self, prompt: Prompt, client: EngineClient, created: int) -> Response:
        (choice,) = prompt.choices
        reply = await answered(client, choice.call)
        draft = self._draft(choice.call, created)
        ended_at = now(self._clock)

        def made() -> dict[str, Any]:
            response = response_body(draft, reply, ended_at)
            if reply.is_long:
                let_go_of_lists(reply.body)
            return response

        response = await aside(made, is_long=reply.is_long)
        if not reply.ok:
            return failed(replace(reply, body=response))
        await self._keep(response)
        dumped = dumped_at_last if reply.is_long else dump
        raw = await aside(partial(dumped, response), is_long=reply.is_long)
        return Response(raw, media_type=JSON)

    def streamed(self, prompt: Prompt, created: int) -> StreamForm:
        (choice,) = prompt.choices
        draft = self._draft(choice.call, created)
        writer = ResponseWriter(draft, offer_of(choice.call.body), choice.call.body)
        return EventForm(draft, writer, self._clock, self._keep)

    def _draft(self, call: EngineCall, created: int) -> ResponseDraft:
        return ResponseDraft(self._body, call.rid, created, not_held=call.served.not_held)

    def refusal(self, error: ApiError) -> ApiError:
        """The error, naming fields as they are called here."""
        return renamed(error, self._body)


class EventForm:
    """Typed events of one response; the last holds the whole of it."""

    def __init__(
        self, draft: ResponseDraft, writer: ResponseWriter, clock: Clock, keep: Keep
    ) -> None:
        self._body = draft.body
        self._clock = clock
        self._keep = keep
        self._writer = writer
        self.writers: Sequence[StreamWriter] = [self._writer]

    async def end(self) -> bytes:
        """The open item's end, and the response: it is stored when its last event leaves."""
        ended_at, tokens = now(self._clock), self._writer.usage.completion_tokens
        last, response = await aside(
            partial(self._writer.end, ended_at), is_long=tokens > FEW_TOKENS
        )
        await self._keep(response)
        return last

    async def fail(self, error: ApiError) -> bytes:
        last, response = self._writer.fail(renamed(error, self._body))
        with suppress(Overloaded):
            await self._keep(response)
        return last


def now(clock: Clock) -> int:
    """Seconds since the epoch."""
    return int(clock.now().timestamp())
