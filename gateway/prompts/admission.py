"""What a request may become: checked, given a class by us, and cut into engine calls.

One engine call makes one choice: SGLang forgets the ids of the children of `n > 1`, and without
its id a request cannot be aborted. So `n` choices of `k` prompts are `k * n` calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson
from fastapi import Request

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding, inputs_of
from api.errors import InvalidRequest, NoFlexRoom, UnsupportedMediaType
from api.json_shape import check_shape
from api.mapped_fields import mapped
from api.model_errors import unknown_model
from api.numbers import check_numbers
from api.responses.request import check_response
from api.usage import TokenUsage
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
    EngineCall,
    RequestClass,
)
from engine_adapter.client.choices import single_choice_bodies
from engine_adapter.client.estimate import answer_tokens, prompt_tokens
from engine_adapter.client.pool import EnginePool, Route
from engine_adapter.client.rid import new_rid
from gateway.auth.principal import Principal
from gateway.observability.metrics import Metrics
from gateway.prompts.fair_room import FairRoom
from gateway.prompts.flex_room import FlexRoom

_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    CHAT_PATH: check_chat,
    COMPLETIONS_PATH: check_completion,
    EMBEDDINGS_PATH: check_embedding,
    RESPONSES_PATH: check_response,
}
INPUTS_PER_PLACE: Final = 16
NOT_HELD_HEADER: Final = "x-not-held"
"""Names the fields that this reply does not follow, though they were taken."""
MAX_NAMES: Final = 16
MAX_NAME_CHARS: Final = 128


@dataclass(frozen=True)
class Choice:
    """One choice of a reply and the call that makes it.

    Attributes:
        index: Place in the reply: prompt number times `n` plus choice number.
        call: The engine call.
        counts_prompt: The prompt's tokens are counted with this choice (the first of its prompt).
    """

    index: int
    call: EngineCall
    counts_prompt: bool


@dataclass(frozen=True)
class Admitted:
    """A request that will be sent to an engine."""

    path: str
    model: str
    request_class: RequestClass
    choices: tuple[Choice, ...]
    route: Route
    stream: bool
    include_usage: bool
    service_tier: str | None
    principal: Principal
    num_places: int
    """Engine calls that it counts as."""
    tokens: int
    """About how many it may use: prompts, and every answer at its longest."""

    def used(self) -> TokenUsage:
        """What engines have served of it so far; a prompt counts once for all its choices."""
        total = TokenUsage()
        counts_prompt = False
        for choice in self.choices:
            counts_prompt = counts_prompt or choice.counts_prompt
            served = choice.call.served.usage
            total += served if counts_prompt else served.without_prompt()
            counts_prompt = counts_prompt and not served.prompt_tokens
        return total

    @property
    def told_headers(self) -> dict[str, str]:
        """What a reply says of fields that its engine could not follow, once it has answered."""
        names = {name for choice in self.choices for name in choice.call.served.not_held}
        if not names:
            return {}
        told = [quote(name[:MAX_NAME_CHARS], safe="[].$") for name in sorted(names)]
        return {NOT_HELD_HEADER: ", ".join(told[:MAX_NAMES])}

    @property
    def chat(self) -> bool:
        """Whether this is a chat completion."""
        return self.path == CHAT_PATH


class Admission:
    """Lets requests in while there is room."""

    def __init__(self, engines: EnginePool, metrics: Metrics, max_in_flight: int) -> None:
        self._engines = engines
        self._metrics = metrics
        self._room = FairRoom(max_in_flight)
        self._flex_room = FlexRoom()
        self._idle = asyncio.Event()
        self._idle.set()

    def admit(
        self,
        path: str,
        body: dict[str, Any],
        *,
        request_id: str,
        timeout_s: float,
        principal: Principal,
        truncates: bool = False,
    ) -> Admitted:
        """Cut a checked body into calls.

        Raises:
            InvalidRequest: The model does not serve this path.
            ModelNotFound: No engine serves the model, or not to this project.
            EngineUnavailable: The engine that serves it does not answer.
            Overloaded: Too many calls are in flight, of its project or of all.
            RateLimited: Its project has as many requests in flight as it may.
            NoFlexRoom: It asks for flex, and no engine has spare capacity.
        """
        if not principal.may_use(body["model"]):
            raise unknown_model(body["model"])
        if (model := self._engines.resolve(body["model"])) != body["model"]:
            body = {**body, "model": model}
        request_class, tier = class_of_tier(body.get("service_tier"))
        check_numbers(body, self._engines.sizes_of(model))
        online = request_class is RequestClass.ONLINE
        route = self._engines.pick(body["model"], path, body, online=online)
        choices = tuple(
            Choice(
                index,
                EngineCall(
                    path=path,
                    body=call_body,
                    rid=new_rid(),
                    request_class=request_class,
                    timeout_s=timeout_s,
                    request_id=request_id,
                    truncates=truncates,
                ),
                counts_prompt,
            )
            for index, (call_body, counts_prompt) in enumerate(single_choice_bodies(path, body))
        )
        if request_class is RequestClass.FLEX:
            route = self._choose_flex(route, body["model"], len(choices))
        num_places = _num_places(path, body, len(choices))
        self._room.check(principal.project_id, num_places, principal.concurrent_requests)
        options = body.get("stream_options") or {}
        return Admitted(
            path=path,
            model=body["model"],
            request_class=request_class,
            choices=choices,
            route=route,
            stream=bool(body.get("stream")),
            include_usage=bool(options.get("include_usage")),
            service_tier=tier,
            principal=principal,
            num_places=num_places,
            tokens=prompt_tokens(path, body) + len(choices) * answer_tokens(path, body),
        )

    @contextmanager
    def room(self, admitted: Admitted) -> Iterator[None]:
        """Count a request's calls while they are in flight.

        Raises:
            Overloaded: The room was given away since the request was admitted.
        """
        num_calls, principal = len(admitted.choices), admitted.principal
        self._room.check(principal.project_id, admitted.num_places, principal.concurrent_requests)
        self._room.enter(principal.project_id, admitted.num_places)
        if admitted.request_class is RequestClass.FLEX:
            self._flex_room.enter(admitted.route.member, num_calls)
        self._idle.clear()
        self._metrics.engine_calls_in_flight.inc(num_calls)
        try:
            yield
        finally:
            if admitted.request_class is RequestClass.FLEX:
                self._flex_room.leave(admitted.route.member, num_calls)
            self._metrics.engine_calls_in_flight.dec(num_calls)
            if self._room.leave(principal.project_id, admitted.num_places):
                self._idle.set()

    def _choose_flex(self, preferred: Route, model: str, num_calls: int) -> Route:
        try:
            chosen = self._flex_room.choose(self._engines, preferred.member, model, num_calls)
            return preferred if chosen is preferred.member else Route(chosen)
        except NoFlexRoom:
            self._metrics.flex_refused.inc()
            raise

    async def drained(self, limit_s: float) -> bool:
        """Wait until no call is in flight, aborts of cut ones included; whether it came to that."""
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _num_places(path: str, body: Mapping[str, Any], num_calls: int) -> int:
    """One call of many embeddings is as much work as many calls."""
    if path != EMBEDDINGS_PATH:
        return num_calls
    return -(-len(inputs_of(body)) // INPUTS_PER_PLACE)


def class_of_tier(tier: str | None) -> tuple[RequestClass, str | None]:
    """The class of a synchronous request, and the tier its reply names if one was asked for.

    Only flex is another class (rows C-25 to C-27); every other tier is served as
    `default`, and the reply says so.
    """
    if tier == "flex":
        return RequestClass.FLEX, "flex"
    return RequestClass.ONLINE, None if tier is None else "default"


async def json_body(request: Request) -> dict[str, Any]:
    """A small request's body as an object (rows T-15, T-16).

    Raises:
        UnsupportedMediaType: It says it is something else.
        InvalidRequest: It is not JSON, not an object, or too complex.
    """
    return checked_body(await raw_body(request))


async def raw_body(request: Request) -> bytes:
    """The bytes of a body that says it is JSON.

    Raises:
        UnsupportedMediaType: It says it is something else.
    """
    media_type = request.headers.get("content-type", "application/json").split(";")[0].strip()
    if not (media_type.lower() == "application/json" or media_type.lower().endswith("+json")):
        raise UnsupportedMediaType("The body must be application/json.")
    return await request.body()


def checked_body(raw: bytes, path: str | None = None) -> dict[str, Any]:
    """A body as an object; in our words and checked, for one of our paths. May run in a thread.

    Raises:
        InvalidRequest: It is not JSON, not an object, too complex, or does not pass the checks.
    """
    check_shape(raw)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body is not valid JSON.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    made: dict[str, Any] = body
    if path is not None:
        made = mapped(path, made)
        _CHECKS[path](made)
    return made
