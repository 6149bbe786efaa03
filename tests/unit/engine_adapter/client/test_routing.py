from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH
from engine_adapter.client.routing import (
    BLOCK_BYTES,
    BLOCK_TOKENS,
    MAX_BLOCKS,
    PrefixRouting,
    Prompt,
    drawn_two,
    prompt_of,
)


@dataclass
class Engine:
    url: str
    num_calls: int = 0
    waiting_tokens: int = 0
    cache_tokens: int = 0


def engines(num: int = 4) -> list[Engine]:
    return [Engine(f"http://e{i}") for i in range(num)]


def prompt(head: int, num_blocks: int = 10) -> Prompt:
    blocks = tuple(head * 1000 + i for i in range(num_blocks))
    return Prompt(blocks, head, num_blocks * BLOCK_TOKENS)


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": messages, **more}


def test_a_later_turn_begins_with_the_blocks_of_the_one_before() -> None:
    before = prompt_of(CHAT_PATH, chat("a question " * 300))
    after = prompt_of(CHAT_PATH, chat("a question " * 300, "an answer", "another question"))
    assert len(before.blocks) > 5
    assert after.blocks[: len(before.blocks)] == before.blocks
    assert after.head == before.head
    assert after.num_tokens > before.num_tokens


def test_a_block_stands_for_all_before_it() -> None:
    same_end = "x" * BLOCK_BYTES * 3
    one = prompt_of(COMPLETIONS_PATH, {"prompt": "a" + same_end})
    two = prompt_of(COMPLETIONS_PATH, {"prompt": "b" + same_end})
    assert not set(one.blocks) & set(two.blocks)


def test_tools_and_the_systems_words_belong_to_the_beginning() -> None:
    plain = prompt_of(CHAT_PATH, chat("q" * 2000))
    tools = prompt_of(CHAT_PATH, chat("q" * 2000, tools=[{"type": "function"}]))
    assert not set(plain.blocks) & set(tools.blocks)
    assert plain.head != tools.head


def test_embeddings_have_no_prompt_and_long_prompts_a_bounded_one() -> None:
    assert prompt_of(EMBEDDINGS_PATH, {"input": "x" * 5000}) == Prompt()
    assert len(prompt_of(COMPLETIONS_PATH, {"prompt": "x" * 3_000_000}).blocks) == MAX_BLOCKS


def test_the_same_beginning_goes_where_it_went() -> None:
    routing, able = PrefixRouting(), engines()
    first, new_tokens = routing.choose(able, prompt(7))
    assert new_tokens == 10 * BLOCK_TOKENS
    assert routing.choose(able, prompt(7, 12)) == (first, 2 * BLOCK_TOKENS)


def test_two_gateways_send_a_new_conversation_to_the_same_engine() -> None:
    able = engines()
    for head in range(50):
        one, _ = PrefixRouting().choose(able, prompt(head))
        two, _ = PrefixRouting().choose(able[::-1], prompt(head))
        assert one is two


def test_of_the_two_drawn_the_lighter_is_taken_and_no_third() -> None:
    able = engines()
    first, second = drawn_two(able, 7)
    first.waiting_tokens = 50_000
    assert PrefixRouting().choose(able, prompt(7))[0] is second
    second.waiting_tokens = 60_000
    assert PrefixRouting().choose(able, prompt(7))[0] is first


def test_a_cached_beginning_is_left_when_more_waits_before_it_than_it_saves() -> None:
    routing, able = PrefixRouting(), engines()
    first, _ = routing.choose(able, prompt(7))
    first.waiting_tokens = 3 * BLOCK_TOKENS
    assert routing.choose(able, prompt(7))[0] is first
    first.waiting_tokens = 30 * BLOCK_TOKENS
    assert routing.choose(able, prompt(7))[0] is not first


def test_what_an_engine_had_to_forget_is_forgotten_here_oldest_first() -> None:
    routing = PrefixRouting()
    able = [Engine("http://a", cache_tokens=20 * BLOCK_TOKENS)]
    for head in (1, 2, 3):
        routing.choose(able, prompt(head))
    assert routing.choose(able, prompt(3))[1] == 0
    assert routing.choose(able, prompt(1))[1] == 10 * BLOCK_TOKENS


def test_an_engine_that_has_gone_has_nothing() -> None:
    routing, able = PrefixRouting(), engines(1)
    routing.choose(able, prompt(1))
    routing.forget(able[0].url)
    assert routing.choose(able, prompt(1))[1] == 10 * BLOCK_TOKENS


@given(st.lists(st.integers(0, 2**32 - 1), min_size=200, max_size=200, unique=True))
def test_conversations_spread_over_engines(heads: list[int]) -> None:
    able = engines()
    drawn = [drawn_two(able, head)[0].url for head in heads]
    assert {drawn.count(one.url) > 0 for one in able} == {True}
