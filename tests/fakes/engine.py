"""A fake engine: live requests, slots, aborts and SGLang's dialect, without a model or a socket.

`FakeEngineClient` speaks to it in the process, `fake_server` puts it behind a real port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from api.usage import TokenUsage
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH
from engine_adapter.client.engine_facts import OURS
from engine_adapter.scheduling.policies.settings import LEVEL_KNOB, PROFILE_KNOB, Level
from tests.fakes.script import Script, script_for

VERSION = "fake"
"""Of one answer: its tokens are made up before the first is given."""


@dataclass(frozen=True)
class FakeSettings:
    """How the fake engine behaves.

    Attributes:
        model: The only model it serves.
        context_tokens: Prompt and answer together.
        latency_s: Pause before the first token.
        token_s: Pause before each further token.
        max_running: Requests that run at once; further ones wait.
        flex_slots: Flex requests it takes; none: it says nothing about them.
        embeds: It makes embeddings, and no text.
        plugin: It says that our scheduler runs in it.
        sampling_backend: The one it says it has; the real ones but `pytorch` follow no seeds.
        tool_call_parser: The one it says it has; it makes no calls with it.
        reads_images: It says that its model does.
        server: What kind of server it is (`engine_facts.OURS` and the others).
        more_models: Further ids that one that is not ours serves: aliases, and adapters, which
            begin with ``lora``.
        key: The API key that one that is not ours wants; empty for none.
    """

    model: str = "fake-model"
    context_tokens: int = 2048
    latency_s: float = 0.0
    token_s: float = 0.0
    max_running: int = 256
    flex_slots: int | None = None
    embeds: bool = False
    plugin: bool = True
    tool_call_parser: str = ""
    sampling_backend: str = "pytorch"
    reads_images: bool = False
    server: str = OURS
    more_models: tuple[str, ...] = ()
    key: str = ""


class Refused(Exception):
    """The fake engine answers with an error status."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class ConnectionBroken(Exception):
    """The fake engine dies in the middle of an answer."""


class FakeEngine:
    """One engine. Invariant: an id is in `waiting` or `running` exactly while its run lives."""

    def __init__(self, settings: FakeSettings | None = None) -> None:
        self.settings = settings or FakeSettings()
        self.waiting: dict[str, asyncio.Event] = {}
        self.running: dict[str, asyncio.Event] = {}
        self.down = False
        """While set, every call finds no engine."""
        self.report: dict[str, Any] = {}
        """What it says about a runtime inside it, beside what it knows itself."""
        self.received: list[dict[str, Any]] = []
        """The last bodies that came in, oldest first."""
        self.traceparents: list[str | None] = []
        """The header of each call over HTTP, oldest first."""
        self._slots = asyncio.Semaphore(self.settings.max_running)
        self._served: dict[str, list[int]] = {}
        self._classes: dict[str, str] = {}
        self._num_flex = 0

    @property
    def served(self) -> dict[str, TokenUsage]:
        """Tokens served so far by class, those of cut requests too."""
        return {word: TokenUsage(*counts) for word, counts in self._served.items()}

    def abort(self, rid: str) -> None:
        """Drop requests the way SGLang does: every live id that begins with `rid`."""
        if not rid:
            return
        for live in (self.waiting, self.running):
            for known, aborted in live.items():
                if known.startswith(rid):
                    aborted.set()

    def server_info(self) -> dict[str, Any]:
        word = {"plugin": "live"} if self.settings.plugin else {}
        live = {
            "waiting": [*self.waiting],
            "running": [*self.running],
            "classes": dict(self._classes),
        }
        ours = {**self.report, **word, "live": live, **self._flex_room()}
        return {
            "served_model_name": self.settings.model,
            "context_length": self.settings.context_tokens,
            "max_total_num_tokens": self.settings.context_tokens * 16,
            "max_running_requests": self.settings.max_running,
            "version": VERSION,
            "sampling_backend": self.settings.sampling_backend,
            "tool_call_parser": self.settings.tool_call_parser or None,
            "internal_states": [{"coserve": ours}],
        }

    def set_internal_state(self, knobs: Mapping[str, Any]) -> list[bool]:
        """Take a new level or measure anew, as our scheduler does where it says it can."""
        if PROFILE_KNOB in knobs:
            if "profile" not in self.report:
                return [False]
            self.report["profile"] = {**self.report["profile"], "state": "measuring"}
            return [True]
        levels, wanted = list(Level), knobs.get(LEVEL_KNOB, -1)
        if "level" not in self.report or wanted not in range(len(levels)):
            return [False]
        self.report["level"] = levels[wanted].value
        return [True]

    def _flex_room(self) -> dict[str, int]:
        slots = self.settings.flex_slots
        return {} if slots is None else {"flex_room": max(0, slots - self._num_flex)}

    def models(self) -> dict[str, Any]:
        card = {
            "id": self.settings.model,
            "object": "model",
            "max_model_len": self.settings.context_tokens,
        }
        return {"object": "list", "data": [card]}

    def model_info(self) -> dict[str, Any]:
        return {
            "model_path": self.settings.model,
            "is_generation": not self.settings.embeds,
            "has_image_understanding": self.settings.reads_images,
        }

    def script(self, path: str, body: Mapping[str, Any]) -> Script:
        """The answer to a body.

        Raises:
            Refused: The body is wrong, or orders an error.
        """
        self.received = [*self.received[-99:], dict(body)]
        if (path == EMBEDDINGS_PATH) != self.settings.embeds:
            raise Refused(400, flat_error(400, "This model does not serve this endpoint."))
        if path == CHAT_PATH and not body.get("messages"):
            raise Refused(400, flat_error(400, "Messages cannot be empty."))
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        limit = self.settings.context_tokens
        if path == CHAT_PATH and wanted > limit:
            message = f"max_completion_tokens is too large: {wanted}.This model supports {limit}."
            raise Refused(400, flat_error(400, message))
        script = script_for(path, body, self.settings.token_s)
        if script.prompt_tokens >= limit:
            raise Refused(
                400,
                flat_error(
                    400,
                    f"The input ({script.prompt_tokens} tokens) is longer than the model's "
                    f"context length ({limit} tokens).",
                ),
            )
        if script.prompt_tokens + wanted > limit:
            raise Refused(400, flat_error(400, _no_room(limit, script.prompt_tokens, wanted)))
        if script.status >= 400:
            raise Refused(script.status, flat_error(script.status, "ordered by the prompt"))
        return script

    async def run(self, rid: str, script: Script) -> AsyncGenerator[tuple[str, str | None], None]:
        """Tokens as they are made: the text, and the finish reason with the last.

        Raises:
            Refused: The id is in use.
            ConnectionBroken: The script orders it.
        """
        if rid in self.waiting or rid in self.running:
            raise Refused(400, flat_error(400, "Duplicate request ID detected."))
        aborted = self.waiting[rid] = asyncio.Event()
        self._classes[rid] = script.request_class
        is_flex = script.request_class == "flex"
        self._num_flex += is_flex
        try:
            async with self._slots:
                del self.waiting[rid]
                self.running[rid] = aborted
                served = self._served.setdefault(script.request_class, [0, 0])
                served[0] += script.prompt_tokens
                last = len(script.tokens) - 1
                for i, token in enumerate(script.tokens):
                    await self._pause(
                        self.settings.latency_s if i == 0 else script.token_s, aborted
                    )
                    if aborted.is_set():
                        yield "", "abort"
                        return
                    if script.die_after == i:
                        raise ConnectionBroken
                    served[1] += bool(token)
                    yield token, script.finish if i == last else None
        finally:
            self._num_flex -= is_flex
            self._classes.pop(rid, None)
            self.waiting.pop(rid, None)
            self.running.pop(rid, None)

    @staticmethod
    async def _pause(pause_s: float, aborted: asyncio.Event) -> None:
        if pause_s <= 0:
            return
        try:
            async with asyncio.timeout(pause_s):
                await aborted.wait()
        except TimeoutError:
            return


def _no_room(limit: int, prompt: int, wanted: int) -> str:
    return (
        f"Requested token count exceeds the model's maximum context length of {limit} tokens. You "
        f"requested a total of {prompt + wanted} tokens: {prompt} tokens from the input messages "
        f"and {wanted} tokens for the completion."
    )


def flat_error(status: int, message: str) -> dict[str, Any]:
    """SGLang's error shape, which never may reach a caller."""
    return {
        "object": "error",
        "message": message,
        "type": "BadRequestError" if status < 500 else "InternalServerError",
        "param": None,
        "code": status,
    }


def usage_block(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def likely(word: str, num_others: int) -> dict[str, Any]:
    """A token with its log probability, and those of so many others."""
    told = {"token": word, "bytes": list(word.encode()), "logprob": -0.125}
    return {**told, "top_logprobs": [told] * num_others}


def whole_answer(
    path: str, body: Mapping[str, Any], text: str, finish: str, usage: dict[str, Any]
) -> dict[str, Any]:
    """SGLang's shape of a whole answer."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None}
    if path == CHAT_PATH:
        choice["message"] = {
            "role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None,
        }  # fmt: skip
    else:
        choice["text"] = text
    if path == CHAT_PATH and body.get("logprobs"):
        num_others = body.get("top_logprobs") or 0
        tokens = [likely(word, num_others) for word in text.split()]
        choice["logprobs"] = {"content": tokens}
    choice |= {"finish_reason": finish, "matched_stop": None}
    return {
        "id": body.get("rid", ""),
        "object": "chat.completion" if path == CHAT_PATH else "text_completion",
        "created": 1_700_000_000,
        "model": body.get("model"),
        "choices": [choice],
        "usage": usage,
        "metadata": {"weight_version": "default"},
    }
