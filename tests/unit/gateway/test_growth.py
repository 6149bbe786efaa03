"""Whatever is made of a tenant's data takes time by its length, never by its square.

Each case is measured at a size and at four times that size. Work that is linear takes four times as
long, quadratic work sixteen times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding
from api.json_shape import check_shape
from api.responses.items import listed, messages_of
from api.responses.request import check_response
from api.tool_calls import ToolOffer, whole_message
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH
from engine_adapter.client.estimate import prompt_tokens
from gateway.responses.shelf import items_by_id
from store.models import StoredResponse

MOST = 9.0


def stored(n: int) -> list[StoredResponse]:
    body = {"output": [{"id": "msg_a"}]}
    made = (orjson.dumps([{"id": f"msg_{i}"}]) for i in range(n))
    return [StoredResponse(body=orjson.dumps(body), input_items=given) for given in made]


def calls(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"}
        yield {"type": "function_call_output", "call_id": f"c{i}", "output": "x"}


def messages(n: int, **message: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [message] * n}


def of_items(items: list[dict[str, Any]]) -> None:
    messages_of(listed(items, "0"), "be brief")


def called(text: str, *, forced: str | None = None) -> None:
    whole_message({"content": text}, "stop", ToolOffer(forced=forced))


TEXT = {"type": "text", "text": "a"}
CASES: dict[str, tuple[int, Callable[[int], Any], Callable[[Any], Any]]] = {
    "calls and their outputs": (1500, lambda n: [*calls(n)], of_items),
    "system messages": (1000, lambda n: [{"role": "system", "content": "x" * 2000}] * n, of_items),
    "items of stored responses": (2000, stored, items_by_id),
    "messages of items": (1000, lambda n: [{"role": "user", "content": "a"}] * n, of_items),
    "thoughts": (
        1000,
        lambda n: [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x" * 500}]}]
        * n,
        of_items,
    ),
    "chat messages": (2000, lambda n: messages(n, role="user", content="a"), check_chat),
    "chat parts": (2000, lambda n: messages(1, role="user", content=[TEXT] * n), check_chat),
    "biases": (
        2000,
        lambda n: messages(1, role="user", content="a") | {"logit_bias": dict.fromkeys(
            map(str, range(n)), 1)},
        check_chat,
    ),
    "token ids": (5000, lambda n: {"model": "m", "prompt": [7] * n}, check_completion),
    "inputs": (500, lambda n: {"model": "m", "input": [[7] * 20] * n}, check_embedding),
    "items": (
        1000,
        lambda n: {"model": "m", "input": [{"role": "user", "content": "a"}] * n},
        check_response,
    ),
    "an estimate of messages": (
        5000,
        lambda n: messages(n, role="user", content="a"),
        lambda body: prompt_tokens(CHAT_PATH, body),
    ),
    "an estimate of token ids": (
        5000,
        lambda n: {"model": "m", "prompt": [[7] * 10] * n},
        lambda body: prompt_tokens(COMPLETIONS_PATH, body),
    ),
    "the shape of brackets": (20_000, lambda n: b"[" + b"[]," * n + b"1]", check_shape),
    "the shape of strings": (600_000, lambda n: b'["' + b'\\"' * n + b'"]', check_shape),
    "calls in an answer": (
        3000,
        lambda n: '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * n,
        called,
    ),
    "forced calls in an answer": (
        3000,
        lambda n: "[" + ",".join(['{"name": "f", "parameters": {}}'] * n) + "]",
        lambda text: called(text, forced="stop"),
    ),
    "tags without a call": (3000, lambda n: "<tool_call>" * n + "x" * 600, called),
    "spaces in an answer": (20_000, lambda n: "x" + " " * n + "x", called),
    "words between spaces": (20_000, lambda n: " a" * n, called),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_work_is_linear(name: str) -> None:
    n, make, work = CASES[name]
    once, four_times = make(n), make(4 * n)
    # Of a few tries the fastest: what else the machine does only adds.
    assert min(taken_s(work, four_times) / taken_s(work, once) for _ in range(5)) < MOST


def taken_s(work: Callable[[Any], Any], given: Any) -> float:
    begun_s = time.thread_time()
    work(given)
    return time.thread_time() - begun_s
