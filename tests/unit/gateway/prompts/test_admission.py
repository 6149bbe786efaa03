"""What a request holds, and that its end, whatever it is, gives all of it back exactly once."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest

from api.errors import (
    ApiError,
    EngineUnavailable,
    NoFlexRoom,
    Overloaded,
    RateLimited,
    TokensRateLimited,
)
from api.numbers import UNKNOWN
from api.usage import TokenUsage
from coserve.local.ports import free_port
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH
from engine_adapter.client.estimate import weigh
from engine_adapter.client.pool import EnginePool
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.limits.at_once import RequestsAtOnce
from gateway.limits.buckets import MemoryBuckets
from gateway.limits.limiter import RateLimiter
from gateway.limits.rates import UNSET, Rates
from gateway.observability.metrics import Metrics
from gateway.prompts.admission import AdmissionControl
from gateway.prompts.prompt import Prompt, prompt_of
from service.broker import Broker
from store.session import Database
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

MINE = Principal("proj_mine", "key_1")
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SMALL, LARGE = 100, 1 << 20
PER_MINUTE = 6000
LIMITED = replace(
    MINE, project_rates=Rates(PER_MINUTE, 1_000_000), concurrent_requests=2, key_rates=UNSET
)


@dataclass
class Gate:
    """An admission control and all that it takes from."""

    engines: EnginePool
    metrics: Metrics
    usage: UsageRecorder
    limiter: RateLimiter
    at_once: RequestsAtOnce
    control: AdmissionControl

    def prompt(
        self, body: dict[str, Any] = CHAT, path: str = CHAT_PATH, who: Principal = MINE
    ) -> Prompt:
        return prompt_of(
            self.engines,
            weigh(path, body, UNKNOWN, is_large=False, is_routed=self.engines.routes_by_prompt),
            who,
            request_id="req_1",
            timeout_s=9.0,
        )

    async def left(self, who: Principal) -> tuple[int, int]:
        """How many requests and tokens of a minute are taken."""
        await self.limiter.flush()
        used = await self.limiter.used(who.project_id, who.project_rates)
        return used["requests"][0], used["tokens"][0]

    @property
    def num_calls(self) -> float:
        value: float = self.metrics.engine_calls_in_flight._value.get()
        return value


async def gate(*, max_in_flight: int = 4, embeds: bool = False) -> Gate:
    engines = EnginePool([FakeEngineClient(FakeEngine(FakeSettings(model="m", embeds=embeds)))])
    await engines.probe()
    metrics = Metrics()
    usage = UsageRecorder(Database("postgresql+psycopg://nobody@127.0.0.1:1/none"), metrics)
    # A clock that stands: what is given back is told from what flows back by itself.
    buckets = MemoryBuckets(lambda: 1_000_000)
    limiter = RateLimiter(buckets, metrics, key_default=UNSET, project_default=UNSET)
    at_once = RequestsAtOnce(Broker(f"redis://127.0.0.1:{free_port()}/0"), metrics)
    control = AdmissionControl(
        engines,
        metrics,
        usage,
        limiter,
        at_once,
        max_in_flight=max_in_flight,
        bytes_per_minute=4 * LARGE,
    )
    return Gate(engines, metrics, usage, limiter, at_once, control)


async def test_there_is_room_for_so_many_calls() -> None:
    made = await gate()
    async with await made.control.enter(MINE, SMALL) as first:
        with pytest.raises(Overloaded):
            await first.begin(made.prompt({**CHAT, "n": 5}))
    async with await made.control.enter(MINE, SMALL) as first:
        await first.begin(made.prompt({**CHAT, "n": 3}))
        async with await made.control.enter(MINE, SMALL) as second:
            with pytest.raises(Overloaded) as refused:
                await second.begin(made.prompt({**CHAT, "n": 2}))
            assert refused.value.headers["retry-after"]
        assert made.num_calls == 3
    async with await made.control.enter(MINE, SMALL) as again:
        await again.begin(made.prompt({**CHAT, "n": 4}))
    assert made.num_calls == 0


async def test_many_embeddings_are_many_places() -> None:
    made = await gate(embeds=True)
    async with await made.control.enter(MINE, SMALL) as one:
        with pytest.raises(Overloaded):
            await one.begin(made.prompt({"model": "m", "input": ["a"] * 65}, EMBEDDINGS_PATH))


async def test_drained_when_the_last_call_has_ended() -> None:
    made = await gate()
    assert await made.control.drained(0.01)
    async with await made.control.enter(MINE, SMALL) as one:
        await one.begin(made.prompt({**CHAT, "n": 2}))
        assert not await made.control.drained(0.01)
    assert await made.control.drained(0.01)


async def test_one_project_leaves_room_for_another() -> None:
    made = await gate(max_in_flight=64)
    other = Principal("proj_other", "key_2")
    async with AsyncExitStack() as held:
        for _ in range(32):
            one = await held.enter_async_context(await made.control.enter(MINE, SMALL))
            await one.begin(made.prompt())
        more = await held.enter_async_context(await made.control.enter(MINE, SMALL))
        with pytest.raises(Overloaded):
            await more.begin(made.prompt())
        theirs = await held.enter_async_context(await made.control.enter(other, SMALL))
        await theirs.begin(made.prompt(who=other))


async def test_requests_at_once_have_one_limit_and_one_sentence() -> None:
    made = await gate(max_in_flight=64)
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(await made.control.enter(LIMITED, SMALL))
        with pytest.raises(RateLimited, match="2 requests in flight, which is its limit"):
            await made.control.enter(LIMITED, SMALL)
    async with await made.control.enter(LIMITED, SMALL):
        pass


@pytest.mark.parametrize(
    ("length", "num_requests"), [(SMALL, 0), (None, 1), (LARGE, 1)], ids=["small", "open", "large"]
)
async def test_a_refused_body_gives_its_request_back_if_it_is_small(
    length: int | None, num_requests: int
) -> None:
    made = await gate()
    with pytest.raises(ApiError):
        async with await made.control.enter(LIMITED, length):
            raise ApiError("The body is not valid.")
    assert await made.left(LIMITED) == (num_requests, 0)


async def test_too_many_bytes_take_nothing() -> None:
    made = await gate()
    for _ in range(4):
        async with await made.control.enter(LIMITED, LARGE) as one:
            one.keep()
    before = await made.left(LIMITED)
    with pytest.raises(RateLimited, match="bytes"):
        await made.control.enter(LIMITED, LARGE)
    assert await made.left(LIMITED) == before


async def test_what_was_served_is_billed_and_the_rest_flows_back() -> None:
    made = await gate()

    async def lost() -> None:
        async with await made.control.enter(LIMITED, SMALL) as one:
            prompt = await one.begin(made.prompt({**CHAT, "n": 2, "max_tokens": 1000}))
            assert (await made.left(LIMITED))[1] > 2000
            for choice in prompt.choices:
                choice.call.served.add(TokenUsage(prompt_tokens=3, completion_tokens=7))
            raise EngineUnavailable("lost")

    with pytest.raises(EngineUnavailable):
        await lost()
    assert await made.left(LIMITED) == (1, 3 + 2 * 7)
    (count,) = made.usage._pending.values()
    assert (count.num_requests, count.completion_tokens) == (1, 14)


async def test_what_becomes_a_row_keeps_its_tokens() -> None:
    made = await gate()
    async with await made.control.enter(LIMITED, SMALL) as one:
        await one.reserve(500)
        one.keep()
    assert await made.left(LIMITED) == (1, 500)
    assert not made.usage._pending


async def test_refused_by_its_tokens_it_holds_nothing_and_costs_nothing() -> None:
    made = await gate()
    tight = replace(LIMITED, project_rates=Rates(PER_MINUTE, 100))
    with pytest.raises(TokensRateLimited):
        async with await made.control.enter(tight, SMALL) as one:
            await one.begin(made.prompt({**CHAT, "max_tokens": 1000}, who=tight))
    assert await made.left(tight) == (0, 0)
    assert made.num_calls == 0
    assert not made.usage._pending


async def test_flex_without_room_holds_nothing() -> None:
    made = await gate()
    (member,) = made.engines.members
    assert member.facts is not None
    member.facts = replace(member.facts, flex_room=1)
    flex = {**CHAT, "service_tier": "flex"}
    async with await made.control.enter(MINE, SMALL) as one:
        await one.begin(made.prompt(flex))
        async with await made.control.enter(MINE, SMALL) as other:
            with pytest.raises(NoFlexRoom):
                await other.begin(made.prompt(flex))
        assert made.num_calls == 1
    async with await made.control.enter(MINE, SMALL) as again:
        await again.begin(made.prompt(flex))


async def test_flex_that_may_not_wait_does_not_pass_flex_that_waits() -> None:
    made = await gate()
    (member,) = made.engines.members
    assert member.facts is not None
    member.facts = replace(member.facts, flex_room=0)
    flex, patient = {**CHAT, "service_tier": "flex"}, replace(MINE, flex_wait_s=30)
    async with await made.control.enter(patient, SMALL) as one:
        begun = asyncio.ensure_future(one.begin(made.prompt(flex, who=patient)))
        await asyncio.sleep(0)
        member.facts = replace(member.facts, flex_room=1)
        async with await made.control.enter(MINE, SMALL) as other:
            with pytest.raises(NoFlexRoom) as refused:
                await other.begin(made.prompt(flex))
        assert refused.value.headers["x-coserve-flex-place"] == "2"
        await begun
        assert one.headers["x-coserve-flex-place"] == "1"


async def test_whatever_ends_requests_nothing_is_held_in_the_end() -> None:
    """Ends drawn by chance at every stage, cancellation too: all that was taken is free again."""
    made = await gate(max_in_flight=16)
    many = replace(LIMITED, concurrent_requests=8, project_rates=Rates(PER_MINUTE, 50_000))
    draw = random.Random(20261128)

    async def request() -> None:
        length = draw.choice([SMALL, None, LARGE])
        async with await made.control.enter(many, length) as one:
            await asyncio.sleep(0)
            if draw.random() < 0.2:
                raise ApiError("The body is not valid.")
            tokens = draw.choice([10, 1000, 60_000])
            body = {**CHAT, "n": draw.randint(1, 5), "max_tokens": tokens}
            await one.begin(made.prompt(body, who=many))
            await asyncio.sleep(draw.choice([0, 0.001]))
            if draw.random() < 0.3:
                raise EngineUnavailable("lost")

    async def ended() -> None:
        task = asyncio.ensure_future(request())
        if draw.random() < 0.3:
            await asyncio.sleep(draw.choice([0, 0.0005]))
            task.cancel()
        try:
            await task
        except (ApiError, asyncio.CancelledError):
            return

    for _ in range(20):
        await asyncio.gather(*(ended() for _ in range(10)))
    assert made.num_calls == 0
    assert await made.control.drained(0.01)
    assert not made.at_once._held
    assert (await made.left(many))[1] == 0
    async with await made.control.enter(MINE, SMALL) as one:
        await one.begin(made.prompt({**CHAT, "n": 16}))
