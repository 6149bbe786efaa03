"""A checked request: given a class by us, an engine, and cut into engine calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api import not_held
from api.embedding_request import inputs_of
from api.model_errors import unknown_model
from api.usage import TokenUsage
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH, EngineCall, RequestClass
from engine_adapter.client.choices import Choice, choices_of, not_held_of, served_of
from engine_adapter.client.estimate import Weighed
from engine_adapter.client.pool import EnginePool, Route
from engine_adapter.client.rid import new_rid
from engine_adapter.client.routing import Prompt as Beginning
from gateway.auth.principal import Principal

INPUTS_PER_PLACE: Final = 16


@dataclass(frozen=True)
class Prompt:
    """A request that will be sent to an engine.

    Attributes:
        beginning: What routing looks at, also for the next engine when one is lost.
        num_places: Engine calls that it counts as.
        tokens: About how many it may use: prompts, and every answer at its longest.
    """

    path: str
    model: str
    request_class: RequestClass
    choices: tuple[Choice, ...]
    route: Route
    beginning: Beginning | None
    stream: bool
    include_usage: bool
    service_tier: str | None
    principal: Principal
    num_places: int
    tokens: int

    def used(self) -> TokenUsage:
        """What engines have served of it so far."""
        return served_of(self.choices)

    @property
    def told_headers(self) -> dict[str, str]:
        """What a reply says of fields that its engine could not follow, once it has answered."""
        return not_held.header(not_held_of(self.choices))

    @property
    def may_wait(self) -> bool:
        """Whether it stands in line where no engine has room for it."""
        return self.request_class is RequestClass.FLEX and self.principal.flex_wait_s > 0

    @property
    def chat(self) -> bool:
        """Whether this is a chat completion."""
        return self.path == CHAT_PATH


def model_of(engines: EnginePool, body: Mapping[str, Any], principal: Principal) -> str:
    """The model that a checked body asks: what its name stands for now.

    Raises:
        ModelNotFound: The project may not use it.
    """
    if not principal.may_use(body["model"]):
        raise unknown_model(body["model"])
    return engines.resolve(body["model"])


def prompt_of(
    engines: EnginePool,
    weighed: Weighed,
    principal: Principal,
    *,
    request_id: str,
    timeout_s: float,
    truncates: bool = False,
) -> Prompt:
    """A checked body as a prompt.

    Raises:
        InvalidRequest: The model does not serve this path.
        ModelNotFound: No engine serves the model, or not to this project.
        EngineUnavailable: The engine that serves it does not answer.
    """
    path, body = weighed.path, weighed.body
    if (model := model_of(engines, body, principal)) != body["model"]:
        body = {**body, "model": model}
    request_class, tier = class_of_tier(body.get("service_tier"))
    online = request_class is RequestClass.ONLINE
    route = engines.pick(model, path, weighed.beginning, online=online)
    call = EngineCall(
        path=path,
        body=body,
        rid=new_rid(),
        request_class=request_class,
        timeout_s=timeout_s,
        request_id=request_id,
        truncates=truncates,
        is_large=weighed.is_large,
    )
    choices = choices_of(call)
    options = body.get("stream_options") or {}
    return Prompt(
        path=path,
        model=model,
        request_class=request_class,
        choices=choices,
        route=route,
        beginning=weighed.beginning,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        service_tier=tier,
        principal=principal,
        num_places=_num_places(path, body, len(choices)),
        tokens=weighed.tokens + len(choices) * weighed.answer_tokens,
    )


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
