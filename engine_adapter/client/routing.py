"""Which of several engines gets an online request: the one that has the least to do before it.

    work before it = its prompt without what is cached + prompts that wait there + its open calls

An engine's cache is not asked about: what was sent there is remembered, in blocks of the prompt's
bytes. Compared are two engines that are drawn by how the conversation begins, and
those where the longest beginning was sent. Other gateways draw the same two, the first of which
costs least: so they find what this one sent, and old figures lead nobody to where all go.

No clock, no chance, no I/O: the same class routes in the gateway and in simulations.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from zlib import crc32

import orjson

from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH

BLOCK_BYTES: Final = 512
BYTES_PER_TOKEN: Final = 4
"""Of English text and code, about; only comparisons depend on it."""

BLOCK_TOKENS: Final = BLOCK_BYTES // BYTES_PER_TOKEN
CALL_TOKENS: Final = 32
"""Prompt tokens that an open call is worth: it lengthens each step a little, and may be longer."""

AWAY_SHARE: Final = 0.5
"""Of a prompt: what it costs to leave the engine that is drawn first, where other gateways look."""

CACHE_TOKENS: Final = 262_144
"""What is remembered of an engine that does not say how much its cache holds."""

MAX_BLOCKS: Final = 4096
"""Of one prompt; a longer one is known by its beginning."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What routing looks at.

    Attributes:
        blocks: A value for each whole block, which stands for all before it too.
        head: Stands for how the conversation begins: up to its first user message.
        num_tokens: About how long it is.
    """

    blocks: tuple[int, ...] = ()
    head: int = 0
    num_tokens: int = 0


class Choosable(Protocol):
    """An engine that may be chosen."""

    @property
    def url(self) -> str:
        """Its name."""
        ...

    @property
    def num_calls(self) -> int:
        """Calls that are open there, as far as is known."""
        ...

    @property
    def waiting_tokens(self) -> int:
        """Prompt tokens of calls that have no token yet."""
        ...

    @property
    def cache_tokens(self) -> int:
        """Tokens its KV cache holds; 0 where it does not say."""
        ...


C = TypeVar("C", bound=Choosable)


def prompt_of(path: str, body: Mapping[str, Any]) -> Prompt:
    """What routing looks at, of a body that was checked."""
    if path == EMBEDDINGS_PATH:
        return Prompt()
    if path != CHAT_PATH:
        text = orjson.dumps(body.get("prompt"))
        return _prompt(text, head=text[:BLOCK_BYTES])
    # One call for all messages: their number is the caller's, and this runs beside all streams.
    messages = body["messages"]
    tools = orjson.dumps(body.get("tools") or None)
    users = (i for i, message in enumerate(messages, 1) if message.get("role") == "user")
    head = orjson.dumps(messages[: next(users, None)])
    return _prompt(tools + orjson.dumps(messages)[:-1], head=tools + head)


def _prompt(text: bytes, head: bytes) -> Prompt:
    blocks = []
    so_far = 0
    last = min(len(text) // BLOCK_BYTES, MAX_BLOCKS) * BLOCK_BYTES
    for start in range(0, last, BLOCK_BYTES):
        so_far = hash((so_far, text[start : start + BLOCK_BYTES]))
        blocks.append(so_far)
    return Prompt(tuple(blocks), crc32(head), -(-len(text) // BYTES_PER_TOKEN))


class PrefixRouting:
    """Chooses engines, and remembers what was sent to each.

    Invariant: of an engine, at most as many blocks are remembered as its cache has room for, the
    newest ones.
    """

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[int, None]] = {}

    def choose(self, able: Sequence[C], prompt: Prompt) -> tuple[C, int]:
        """The engine to send a prompt to, and how many of its tokens are probably not cached there.

        Args:
            able: Engines that serve it, in any order; at least one.
            prompt: What is to be sent.
        """
        new_tokens = {one.url: self._new_tokens(one.url, prompt) for one in able}
        fewest = min(new_tokens.values())
        drawn = drawn_two(able, prompt.head)
        known = [one for one in able if new_tokens[one.url] == fewest < prompt.num_tokens]

        def work(one: C) -> int:
            before = one.waiting_tokens + CALL_TOKENS * one.num_calls
            away = 0 if one is drawn[0] else int(prompt.num_tokens * AWAY_SHARE)
            return new_tokens[one.url] + before + away

        chosen = min([*drawn, *known], key=work)
        self._note(chosen, prompt)
        return chosen, new_tokens[chosen.url]

    def forget(self, url: str) -> None:
        """An engine has gone; if it comes back, its cache is empty."""
        self._sent.pop(url, None)

    def _new_tokens(self, url: str, prompt: Prompt) -> int:
        sent = self._sent.get(url)
        if not sent:
            return prompt.num_tokens
        num_known = 0
        for block in prompt.blocks:
            if block not in sent:
                break
            num_known += 1
        return prompt.num_tokens - num_known * BLOCK_TOKENS

    def _note(self, chosen: Choosable, prompt: Prompt) -> None:
        sent = self._sent.setdefault(chosen.url, OrderedDict())
        # The beginning last: what follows it is of no use without it.
        for block in reversed(prompt.blocks):
            sent[block] = None
            sent.move_to_end(block)
        room = (chosen.cache_tokens or CACHE_TOKENS) // BLOCK_TOKENS
        while len(sent) > room:
            sent.popitem(last=False)


def drawn_two(able: Sequence[C], head: int) -> list[C]:
    """Two engines for a conversation: the same ones wherever the same engines are known."""
    seed = head.to_bytes(4, "big")
    return sorted(able, key=lambda one: crc32(seed + one.url.encode()), reverse=True)[:2]
