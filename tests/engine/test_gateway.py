"""The gateway before a real engine: what SGLang really sends leaves in the contract's shape."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import openai
import pytest

from engine_adapter.client.http import HttpEngineClient
from engine_adapter.scheduling.policies.settings import Level
from tests.fixtures.engine import TOKENIZER, RunningEngine
from tests.fixtures.online import Gateway

GONE_LIMIT_S = 2.0


def short(gateway: Gateway, **more: Any) -> dict[str, Any]:
    return gateway.chat("Count.", temperature=0, max_tokens=6, **more)


async def test_whole_and_streamed_answers_agree(gateway: Gateway) -> None:
    async with gateway.client() as client:
        create = client.chat.completions.create
        whole = await create(**short(gateway, logprobs=True, top_logprobs=2))
        choice = whole.choices[0]
        assert whole.id.startswith("chatcmpl-")
        assert whole.model == gateway.model
        assert choice.finish_reason in ("stop", "length")
        assert whole.usage is not None
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == whole.usage.completion_tokens
        assert {len(token.top_logprobs) for token in choice.logprobs.content} == {2}

        text, roles, finishes, usages = "", [], [], []
        async for chunk in await create(
            **short(gateway), stream=True, stream_options={"include_usage": True}
        ):
            assert chunk.object == "chat.completion.chunk"
            usages.append(chunk.usage)
            for part in chunk.choices:
                roles += [part.delta.role] if part.delta.role else []
                finishes += [part.finish_reason] if part.finish_reason else []
                text += part.delta.content or ""
    assert text == choice.message.content
    assert roles == ["assistant"]
    assert finishes == [choice.finish_reason]
    assert usages[:-1] == [None] * (len(usages) - 1)
    assert usages[-1] is not None
    assert usages[-1].completion_tokens == whole.usage.completion_tokens
    assert usages[-1].prompt_tokens == whole.usage.prompt_tokens


async def test_several_choices_and_prompts(gateway: Gateway) -> None:
    async with gateway.client() as client:
        chat = await client.chat.completions.create(
            **gateway.chat("Count.", max_tokens=4, temperature=1, seed=1), n=2
        )
        assert [choice.index for choice in chat.choices] == [0, 1]
        text = await client.completions.create(
            model=gateway.model, prompt=["One, two,", "A, B,"], n=2, max_tokens=3, logprobs=1
        )
        assert [choice.index for choice in text.choices] == [0, 1, 2, 3]
        assert text.choices[0].logprobs is not None
        assert len(text.choices[0].logprobs.tokens or ()) == 3
        tokens_text = text.choices[0].logprobs.tokens or []
        offsets = text.choices[0].logprobs.text_offset or []
        assert offsets == [len("".join(tokens_text[:i])) for i in range(3)]
        tokens = await client.completions.create(
            model=gateway.model, prompt=[[5, 6, 7], [8]], max_tokens=2, echo=False
        )
        assert len(tokens.choices) == 2


async def test_too_long_for_the_model(gateway: Gateway) -> None:
    async with gateway.client() as client:
        create = client.chat.completions.create
        with pytest.raises(openai.BadRequestError) as prompt:
            await create(**gateway.chat("word " * 20_000))
        assert (prompt.value.code, prompt.value.param) == ("context_length_exceeded", "messages")
        with pytest.raises(openai.BadRequestError) as both:
            await create(**gateway.chat("Count."), max_tokens=1_000_000, stream=True)
        assert (both.value.code, both.value.param) == ("context_length_exceeded", "max_tokens")
        assert "1000000 in the completion" in both.value.message
        assert "'max_tokens' can be at most" in both.value.message


async def test_a_client_that_goes_away_frees_the_engine(
    gateway: Gateway, engine: RunningEngine
) -> None:
    watcher = HttpEngineClient(engine.url)
    try:
        async with gateway.client() as client:
            endless = gateway.chat("Count.", max_tokens=1500)
            stream = await client.chat.completions.create(
                **endless, stream=True, extra_body={"ignore_eos": True}
            )
            async for _ in stream:
                break
            assert len(await watcher.live_rids()) == 1
            await stream.close()
            gone_at = time.monotonic()
            while await watcher.live_rids():
                await asyncio.sleep(0.02)
            assert time.monotonic() - gone_at < GONE_LIMIT_S

            with pytest.raises(openai.APITimeoutError):
                await client.chat.completions.create(
                    **endless, extra_body={"ignore_eos": True}, n=2, timeout=1.0
                )
            gone_at = time.monotonic()
            while await watcher.live_rids():
                await asyncio.sleep(0.02)
            assert time.monotonic() - gone_at < GONE_LIMIT_S
    finally:
        await watcher.close()


@pytest.mark.parametrize(
    "more",
    [
        {"stop": ["a"], "seed": 3, "logit_bias": {"5": -100}, "user": "u", "metadata": {"a": "b"}},
        {"presence_penalty": 1, "frequency_penalty": 1, "top_p": 0.5, "max_completion_tokens": 3},
        {
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "stop_token_ids": [3],
            "min_tokens": 1,
        },
        {"response_format": {"type": "text"}, "parallel_tool_calls": True, "store": False},
        {"reasoning_effort": "low", "verbosity": "low", "prompt_cache_key": "k"},
        {"chat_template_kwargs": {"enable_thinking": False}, "skip_special_tokens": True},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_what_is_passed_on_the_engine_takes(gateway: Gateway, more: dict[str, Any]) -> None:
    async with gateway.http() as http:
        reply = await http.post("/v1/chat/completions", json=short(gateway, **more))
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("role", ["developer", "system", "user", "assistant", "tool", "function"])
async def test_every_role(gateway: Gateway, role: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": role, "content": "y"}]
    async with gateway.http() as http:
        if role == "function":
            messages[1]["name"] = "f"
        body = {**short(gateway), "messages": messages}
        reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text


ONE_OF = {"type": "string", "enum": ["Paris", "Bonn"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"city": ONE_OF}, "required": ["city"]},
        },
    }
    for name in ("get_weather", "get_time")
]
NAMED = {"type": "function", "function": {"name": "get_time"}}


@pytest.mark.contract("C-06", "C-21", "S-12")
@pytest.mark.parametrize(("choice", "finish"), [("required", "tool_calls"), (NAMED, "stop")])
async def test_forced_tool_calls(
    gateway: Gateway, engine: RunningEngine, choice: Any, finish: str
) -> None:
    """The engine has no tool-call parser: it writes the calls as text, as the fake engine does."""
    asked = gateway.chat("Count.", temperature=0, max_tokens=200) | {
        "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False,
    }  # fmt: skip
    async with httpx.AsyncClient(timeout=60) as http:
        raw = (await http.post(f"{engine.url}/v1/chat/completions", json=asked)).json()
    text = raw["choices"][0]["message"]["content"]
    (written,) = json.loads(text)
    assert text == json.dumps([written])
    assert list(written) == ["name", "parameters"]
    async with gateway.client() as client:
        (whole,) = (await client.chat.completions.create(**asked)).choices
        async with client.chat.completions.stream(**asked) as stream:
            (streamed,) = (await stream.get_final_completion()).choices
    for made in (whole, streamed):
        assert (made.finish_reason, made.message.content) == (finish, None)
        (call,) = made.message.tool_calls or []
        assert call.type == "function"
        assert call.id.startswith("call_")
        # The service tells the model of the tools in words too, so it may choose another one.
        assert call.function.name in (
            {"get_time"} if finish == "stop" else {"get_weather", "get_time"}
        )
        assert json.loads(call.function.arguments)["city"] in ONE_OF["enum"]


@pytest.mark.contract("C-19")
async def test_a_seed_decides_the_answer_whatever_runs_beside_it(gateway: Gateway) -> None:
    async with gateway.client() as client:

        async def ask(seed: int | None, max_tokens: int = 24, **more: Any) -> str:
            asked = gateway.chat("Count.", seed=seed, max_tokens=max_tokens, temperature=1, **more)
            reply = await client.chat.completions.create(**asked)
            return reply.choices[0].message.content or ""

        alone = [await ask(seed) for seed in (1, 2)]
        narrow = await ask(1, top_p=0.9)
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(ask(seed, 40)) for seed in (None, 3, None)]
            again = [group.create_task(ask(seed)) for seed in (1, 2, 1)]
            narrow_again = group.create_task(ask(1, top_p=0.9))
    assert [task.result() for task in again] == [*alone, alone[0]]
    assert narrow_again.result() == narrow
    assert len({*alone, *(task.result()[: len(alone[0])] for task in others)}) > 3


@pytest.mark.contract("E-09")
async def test_a_prompt_is_scored_without_an_answer(gateway: Gateway) -> None:
    """What evaluation harnesses ask for: the log probabilities of a prompt's own tokens."""
    async with gateway.client() as client:
        asked: dict[str, Any] = {"model": gateway.model, "prompt": "One, two, three", "echo": True}
        scored = await client.completions.create(**asked, max_tokens=0, logprobs=1)
        longer = await client.completions.create(**asked, max_tokens=1, logprobs=1)
        wrong_ones: list[dict[str, Any]] = [{}, {"logprobs": 1, "echo": False}]
        for wrong in wrong_ones:
            with pytest.raises(openai.BadRequestError):
                await client.completions.create(**{**asked, "max_tokens": 0, **wrong})
    (choice,), (other,) = scored.choices, longer.choices
    assert (choice.text, choice.finish_reason) == ("One, two, three", "length")
    assert scored.usage is not None
    assert scored.usage.completion_tokens == 0
    assert choice.logprobs is not None
    assert other.logprobs is not None
    tokens = choice.logprobs.tokens or []
    assert "".join(tokens) == choice.text
    assert len(tokens) == scored.usage.prompt_tokens
    assert choice.logprobs.token_logprobs == (other.logprobs.token_logprobs or [])[:-1]
    assert choice.logprobs.token_logprobs[0] is None


@pytest.mark.contract("E-12")
async def test_log_probabilities_tell_the_tokens_own_bytes(gateway: Gateway) -> None:
    first_of_emoji = json.loads((TOKENIZER / "tokenizer.json").read_text())["model"]["vocab"]["ðŁ"]
    bias = {"logit_bias": {str(first_of_emoji): 100}, "logprobs": True, "top_logprobs": 2}
    wanted = {(0xF0, 0x9F)}
    async with gateway.client() as client:
        create = client.chat.completions.create
        logprobs = (await create(**short(gateway, **bias))).choices[0].logprobs
        assert logprobs is not None
        tokens = logprobs.content or []
        assert {tuple(token.bytes or ()) for token in tokens} == wanted
        assert {tuple(token.top_logprobs[0].bytes or ()) for token in tokens} == wanted
        streamed = [
            tuple(token.bytes or ())
            async for chunk in await create(**short(gateway, **bias), stream=True)
            for choice in chunk.choices
            for token in (choice.logprobs and choice.logprobs.content) or ()
        ]
    assert set(streamed) == wanted


async def test_the_level_changes_while_the_engine_answers(gateway: Gateway) -> None:
    """One setting, changed without a restart: SGLang's own call for knobs carries it."""
    (member,) = gateway.app.state.engines.members
    begun_with = (await member.client.facts()).reported("level")
    async with gateway.client() as client:
        chat = gateway.chat("Count to fifty.", max_tokens=48, stream=True)
        stream = await client.chat.completions.create(**chat)
        num_chunks = 0
        async for _ in stream:
            num_chunks += 1
            if num_chunks == 5:
                assert await member.client.set_level(Level.INVISIBLE)
    assert num_chunks > 5
    assert (await member.client.facts()).reported("level") == "invisible"
    assert await member.client.set_level(Level(begun_with))
    assert (await member.client.facts()).reported("level") == begun_with


@pytest.mark.contract("E-12")
async def test_alternatives_that_are_parts_of_characters_are_all_listed(gateway: Gateway) -> None:
    """Their texts are one and the same, so they were one entry, with the value of the last."""
    parts = [128 + place for place in range(8)]  # single bytes of the vocabulary
    asked: dict[str, Any] = {"logit_bias": {str(part): 100 for part in parts}, "seed": 3}
    chat = short(gateway, **asked, logprobs=True, top_logprobs=5)
    prompt: dict[str, Any] = {"model": gateway.model, "prompt": "Count.", "max_tokens": 6, **asked}
    async with gateway.client() as client:
        whole = (await client.chat.completions.create(**chat)).choices[0].logprobs
        streamed = [
            token
            async for chunk in await client.chat.completions.create(**chat, stream=True)
            for choice in chunk.choices
            for token in (choice.logprobs and choice.logprobs.content) or ()
        ]
        assert whole is not None
        assert len(whole.content or ()) == len(streamed) == 6
        for token in [*(whole.content or ()), *streamed]:
            others = token.top_logprobs
            assert len({tuple(other.bytes or ()) for other in others}) == 5
            assert [other.logprob for other in others] == sorted(
                (other.logprob for other in others), reverse=True
            )
            assert token.logprob in [other.logprob for other in others]
        for listed in (0, 5):
            reply = await client.completions.create(**prompt, logprobs=listed, echo=True)
            logprobs = reply.choices[0].logprobs
            assert logprobs is not None
            tokens, tops = logprobs.tokens or [], list(logprobs.top_logprobs or [])
            each = logprobs.token_logprobs or []
            num_prompt = len(tokens) - 6
            assert (each[0], tops[0]) == (None, None)
            for token, logprob, top in list(zip(tokens, each, tops, strict=True))[1:]:
                assert top[token] == logprob
                assert len(top) == 1 if listed == 0 else len(top) in (5, 6)
            assert all(token.startswith("bytes:") for token in tokens[num_prompt:])
            offsets = logprobs.text_offset or []
            assert offsets == sorted(offsets)
            assert offsets[num_prompt] == len("Count.")
            assert offsets[-1] <= len(reply.choices[0].text)
