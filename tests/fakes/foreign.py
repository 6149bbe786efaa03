"""The fake engine as a server that is not ours: stock vLLM, stock SGLang or any other.

Held to the same parts as a real vLLM by `tests/unit/engine_adapter/client/test_foreign.py` and
`tests/engine/test_vllm.py`: what it lists, how it refuses, and that a request ends when its
connection is closed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import orjson
from aiohttp import web

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH
from engine_adapter.client.engine_facts import OTHER, SGLANG, VLLM
from tests.fakes.dialect import answer, events
from tests.fakes.engine import ConnectionBroken, FakeEngine, Refused

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
VLLM_VERSION: Final = "0.32.0"
_ENGINE = web.AppKey("engine", FakeEngine)
_OPENAI_FIELDS: Final = frozenset(
    {
        "model", "messages", "prompt", "input", "frequency_penalty", "presence_penalty",
        "logit_bias", "logprobs", "top_logprobs", "seed", "stop", "temperature", "top_p",
        "response_format", "max_tokens", "max_completion_tokens", "tools", "tool_choice",
        "parallel_tool_calls", "reasoning_effort", "n", "stream", "stream_options", "echo",
        "dimensions",
    }
)  # fmt: skip


def foreign_app(engine: FakeEngine) -> web.Application:
    """The routes of a server of the kind that the engine's settings name."""
    app = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[_with_key])
    app[_ENGINE] = engine
    kind = engine.settings.server
    paths = [EMBEDDINGS_PATH] if engine.settings.embeds else [CHAT_PATH, COMPLETIONS_PATH]
    app.add_routes([web.post(path, _generate) for path in paths])
    app.add_routes([web.get("/v1/models", _models), web.get("/health", _health)])
    if kind == VLLM:
        app.add_routes([web.get("/version", _version), web.get("/metrics", _metrics)])
    if kind == SGLANG:
        app.add_routes(
            [
                web.get("/server_info", _server_info),
                web.get("/model_info", _model_info),
                web.post("/abort_request", _abort),
            ]
        )
    return app


@web.middleware
async def _with_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    """As vLLM: what is below /v1 wants the key, the rest does not."""
    key = request.app[_ENGINE].settings.key
    said = request.headers.get("authorization", "")
    if key and request.path.startswith("/v1") and said != f"Bearer {key}":
        return _json({"error": "Unauthorized"}, 401)
    return await handler(request)


def _error(status: int, message: str) -> dict[str, Any]:
    """The shape of OpenAI's errors, as vLLM has it: the code is the status."""
    kind = "BadRequestError" if status < 500 else "InternalServerError"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _checked(engine: FakeEngine, body: Mapping[str, Any]) -> None:
    """A strict server refuses what OpenAI's API does not have."""
    unknown = sorted(body.keys() - _OPENAI_FIELDS)
    served = (engine.settings.model, *engine.settings.more_models)
    if body.get("model") not in served:
        raise Refused(404, {"message": f"The model `{body.get('model')}` does not exist."})
    if engine.settings.server == OTHER and unknown:
        raise Refused(400, {"message": f"Unrecognized request argument supplied: {unknown[0]}"})


async def _generate(request: web.Request) -> web.StreamResponse:
    engine = request.app[_ENGINE]
    body = orjson.loads(await request.read())
    known = {**body, "rid": body.get("rid") or body.get("request_id")}
    try:
        _checked(engine, body)
        script = engine.script(request.path, known)
        engine.received[-1] = body
        if not body.get("stream"):
            return _json(await answer(engine, request.path, known, script))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        async with aclosing(events(engine, request.path, known, script)) as stream:
            async for event in stream:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(b"data: " + event + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
    except Refused as refused:
        message = _said_by(engine, refused.body["message"])
        return _json(_error(refused.status, message), refused.status)
    except ConnectionBroken:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    return response


def _said_by(engine: FakeEngine, message: str) -> str:
    """VLLM's words of a prompt that is too long."""
    numbers = re.findall(r"\d+", message)
    if engine.settings.server != VLLM or not message.startswith("The input ("):
        return message
    return (
        f"This model's maximum context length is {numbers[1]} tokens. However, your prompt "
        f"contains at least {numbers[0]} input tokens, which exceeds this limit even without any "
        f"output tokens. Please reduce the length of the input prompt."
    )


async def _models(request: web.Request) -> web.Response:
    settings = request.app[_ENGINE].settings
    cards = []
    for name in (settings.model, *settings.more_models):
        card: dict[str, Any] = {"id": name, "object": "model", "owned_by": settings.server}
        if settings.server != OTHER:
            card["max_model_len"] = settings.context_tokens
        if name.startswith("lora"):
            card |= {"max_model_len": None, "parent": settings.model}
        cards.append(card)
    return _json({"object": "list", "data": cards})


async def _version(_: web.Request) -> web.Response:
    return _json({"version": VLLM_VERSION})


async def _metrics(request: web.Request) -> web.Response:
    engine = request.app[_ENGINE]
    label = f'{{engine="0",model_name="{engine.settings.model}"}}'
    lines = (
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{label} {float(len(engine.running))}",
        "# TYPE vllm:num_requests_waiting gauge",
        f"vllm:num_requests_waiting{label} {float(len(engine.waiting))}",
    )
    return web.Response(text="\n".join(lines) + "\n")


async def _server_info(request: web.Request) -> web.Response:
    """As a stock SGLang: without a word of ours."""
    info = request.app[_ENGINE].server_info()
    return _json({**info, "internal_states": [{}]})


async def _model_info(request: web.Request) -> web.Response:
    return _json(request.app[_ENGINE].model_info())


async def _abort(request: web.Request) -> web.Response:
    request.app[_ENGINE].abort((await request.json()).get("rid") or "")
    return web.Response()


async def _health(request: web.Request) -> web.Response:
    return web.Response(status=503 if request.app[_ENGINE].down else 200)
