"""Online traffic of several projects, and a verdict on each request that was not answered."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from tests.torture.faults import Span, Spoils

THINK_S = (0.05, 0.4)
SILENCE_S = 150.0
"""Longer than any process is stopped: whoever says nothing for so long has lost the request."""
SETTLE_S = 8.0
"""After an outage: what a gateway or a pool of connections may take to see that it is over."""
DONE = b"data: [DONE]"
QUESTIONS = tuple(f"Tell me about the number {number}." for number in (3, 7, 12, 40, 100))
"""What a real model is asked, again and again, greedily: each has one answer, whatever goes on."""
ANSWER_TOKENS = 16


@dataclass(frozen=True)
class Failure:
    """A chat that was not answered.

    Attributes:
        connected_s: When its connection was made: the listener that then lived has it.
        what: `cut` without a word, or the code of the error.
        said: For people.
    """

    tenant: str
    connected_s: float
    failed_s: float
    what: str
    said: str


@dataclass
class ChatsSeen:
    """What came of all chats."""

    num_answered: int = 0
    num_wrong: int = 0
    failures: list[Failure] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    known_at_s: dict[str, list[float]] = field(default_factory=dict)
    """By tenant: when it was answered, whatever gateway did."""
    answers: dict[str, str] = field(default_factory=dict)
    """Of a real model, by question: what it said first."""


class Chatter:
    """One person of a project who chats all the time, with a real model or with a fake one."""

    def __init__(
        self, url: str, model: str, tenant: str, key: str, seen: ChatsSeen, rng: random.Random,
        *, real: bool = False,
    ) -> None:  # fmt: skip
        self._real = real
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._tenant = tenant
        self._headers = {"authorization": f"Bearer {key}"}
        self._seen = seen
        self._rng = rng
        self._num = 0
        self._connected_s = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        # A connection for each request: it shows on which gateway the request began.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=SILENCE_S, limits=limits) as client:
            while not stop.is_set():
                await self._chat(client)
                await asyncio.sleep(self._rng.uniform(*THINK_S))

    async def _chat(self, client: httpx.AsyncClient) -> None:
        self._num += 1
        word = f"{self._tenant}-chat-{id(self)}-{self._num}"
        question = self._rng.choice(QUESTIONS) if self._real else f"fake:text={word}"
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": question}],
            "stream": self._rng.random() < 0.5,
        }
        if self._real:
            body |= {"max_tokens": ANSWER_TOKENS, "temperature": 0}
        began_s = _now_s()
        try:
            what, said = await self._ask(client, body)
        except httpx.ConnectError:
            return  # nobody listens: it has not begun, and will be asked again
        except httpx.TransportError as error:
            what, said = "cut", type(error).__name__
        now_s = _now_s()
        self._seen.spans.append((began_s, now_s))
        if what:
            self._seen.failures.append(Failure(self._tenant, self._connected_s, now_s, what, said))
        elif said != (self._seen.answers.setdefault(question, said) if self._real else word):
            self._seen.num_wrong += 1
        else:
            self._seen.num_answered += 1
            self._seen.known_at_s.setdefault(self._tenant, []).append(now_s)

    async def _ask(self, client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[str, str]:
        """What went wrong, if anything, and what was said."""
        headers, extensions = self._headers, {"trace": self._note}
        async with client.stream(
            "POST", self._url, json=body, headers=headers, extensions=extensions
        ) as reply:
            if reply.status_code != 200:
                error = orjson.loads(await reply.aread())["error"]
                return str(error["code"]), f"{reply.status_code} {error['message']}"
            if not body["stream"]:
                whole = orjson.loads(await reply.aread())
                return "", whole["choices"][0]["message"]["content"]
            return await _streamed(reply)

    async def _note(self, event: str, _: object) -> None:
        if event == "connection.connect_tcp.complete":
            self._connected_s = _now_s()


async def _streamed(reply: httpx.Response) -> tuple[str, str]:
    said = ""
    async for line in reply.aiter_lines():
        if line.encode() == DONE:
            return "", said
        if not line.startswith("data: "):
            continue
        event = orjson.loads(line[6:])
        if "error" in event:
            return str(event["error"]["code"]), event["error"]["message"]
        for choice in event["choices"]:
            said += choice["delta"].get("content") or ""
    return "cut", "the stream ended without its last word"


def excuse(failure: Failure, spans: Sequence[Span], seen: ChatsSeen) -> Span | None:
    """The fault that this failure may be blamed on; none: a promise is broken."""
    for span in spans:
        if _blames(failure, span, spans, seen):
            return span
    return None


def _blames(failure: Failure, span: Span, spans: Sequence[Span], seen: ChatsSeen) -> bool:
    spoils = span.fault.spoils
    if failure.what == "cut":
        # Exactly those that had begun on the gateway that died, and were not whole by then.
        died = span.gateway_died_s
        return died is not None and failure.connected_s <= died[1] and failure.failed_s >= died[0]
    over_s = (span.ended_s or failure.failed_s) + SETTLE_S
    overlaps = failure.failed_s >= span.began_s and failure.connected_s <= over_s
    if failure.what in ("engine_unavailable", "engine_error"):
        return Spoils.ENGINE in spoils and overlaps
    if failure.what == "database_unavailable":
        return Spoils.DATABASE in spoils and overlaps and not _knew(failure, spans, seen)
    return False


def _knew(failure: Failure, spans: Sequence[Span], seen: ChatsSeen) -> bool:
    """Whether the gateway that the request came to had answered with its key before."""
    deaths = [one.gateway_died_s[1] for one in spans if one.gateway_died_s is not None]
    begun_s = max((at for at in deaths if at <= failure.connected_s), default=0.0)
    return any(begun_s < at < failure.connected_s for at in seen.known_at_s.get(failure.tenant, ()))


@dataclass
class Verdict:
    """Of all chats: how many were excused, by fault, and those that nothing excuses."""

    excused: Counter[str] = field(default_factory=Counter)
    broken: list[Failure] = field(default_factory=list)


def judge(seen: ChatsSeen, spans: Sequence[Span]) -> Verdict:
    """Find an excuse for every failure."""
    verdict = Verdict()
    for failure in seen.failures:
        span = excuse(failure, spans, seen)
        if span is None:
            verdict.broken.append(failure)
        else:
            verdict.excused[span.fault.name] += 1
    return verdict


def _now_s() -> float:
    return asyncio.get_running_loop().time()
