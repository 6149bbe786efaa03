"""Letting a prompt in: limits are asked before anything is paid for them, and nothing is kept.

    enter ── requests at once, requests a minute, tokens left, bytes announced: 429 costs no body
       ▼
    the body is read, parsed and checked
       ▼
    begin ── room for its engine calls, the tokens that it may use
       ▼
    the end of the block ── what it used is billed, all else is given back

A refused body gives its request back only if it was small: parsing a large one is work.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from api.chunks import KEEP_ALIVE
from api.errors import NoFlexRoom, RateLimited
from engine_adapter.client.base import RequestClass
from engine_adapter.client.pool import EnginePool
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.http.parsing import BRIEF_BYTES
from gateway.limits.at_once import Place, RequestsAtOnce
from gateway.limits.buckets import PERIOD_US, Charge, MemoryBuckets, cost_us, wait_us
from gateway.limits.limiter import NOTHING, RateLimiter
from gateway.observability.metrics import Metrics
from gateway.prompts.body import SMALL_BYTES
from gateway.prompts.flex_line import FlexLine, Waiting
from gateway.prompts.prompt import Prompt
from gateway.prompts.rooms import NO_ROOM, FairRoom, FlexRoom


class AdmissionControl:
    """Lets prompts in while there is room and their limits allow it.

    Args:
        engines: Where their calls go.
        metrics: What is counted.
        usage: Where used tokens are written.
        limiter: Requests and tokens a minute.
        at_once: Requests at the same time.
        max_in_flight: Engine calls at once.
        bytes_per_minute: Bytes of large bodies that a project may send to this process.
    """

    def __init__(
        self,
        engines: EnginePool,
        metrics: Metrics,
        usage: UsageRecorder,
        limiter: RateLimiter,
        at_once: RequestsAtOnce,
        *,
        max_in_flight: int,
        bytes_per_minute: int,
    ) -> None:
        self.engines = engines
        self.metrics = metrics
        self.usage = usage
        self.limiter = limiter
        self.room = FairRoom(max_in_flight)
        self.flex_room = FlexRoom()
        self.flex_lines: defaultdict[str, FlexLine] = defaultdict(FlexLine)
        self.idle = asyncio.Event()
        self.idle.set()
        self._at_once = at_once
        self._bytes_per_minute = bytes_per_minute
        self._bytes = MemoryBuckets()

    async def enter(self, principal: Principal, length: int | None) -> Admission:
        """Take what can be known from the head of a request.

        Args:
            principal: Whose it is.
            length: Of its body, where it is known.

        Raises:
            RateLimited: Too many requests, or too many bytes; nothing was taken.
            TokensRateLimited: No token is left.
            QuotaExceeded: A limit is zero.
        """
        admission = Admission(self, principal, await self._at_once.enter(principal))
        try:
            admission.reservation = await self.limiter.enter(principal)
            await self.count_bytes(principal, length or 0)
        except BaseException:
            await admission.leave()
            raise
        admission.is_large = length is None or length > SMALL_BYTES
        admission.is_brief = length is not None and length <= BRIEF_BYTES
        return admission

    async def count_bytes(self, principal: Principal, length: int) -> None:
        """Count a body, if it is large: once its length is announced, or else once it has come.

        Raises:
            RateLimited: The project has sent too many bytes.
        """
        if length <= SMALL_BYTES:
            return
        most = self._bytes_per_minute
        cost = min(PERIOD_US, cost_us(length, most))
        taken = await self._bytes.take([Charge(principal.project_id, cost)])
        if not taken.allowed:
            wait_s = max(1, -(-wait_us(taken.backlogs_us[0], cost) // 1_000_000))
            raise RateLimited(
                f"Rate limit reached for this project on bytes of large bodies per minute: limit "
                f"{most:,}, requested {length:,}. Please try again in {wait_s}s.",
                headers={"retry-after": str(wait_s)},
            )

    async def drained(self, limit_s: float) -> bool:
        """Wait until no call is in flight, aborts of cut ones included; whether it came to that."""
        try:
            async with asyncio.timeout(limit_s):
                await self.idle.wait()
        except TimeoutError:
            return False
        return True


class Admission:
    """All that one request holds; `async with` it, and its end gives everything back.

    Invariant: `_prompt` is set while the request's calls have room; `_is_billed` once its tokens
    are reserved, too. Leave it after its engine calls have ended.

    Attributes:
        principal: Whose request it is.
        reservation: Of requests and tokens a minute.
        is_large: Its body is, or may be: it is counted by its bytes.
        is_brief: Its body is: what is made of it is made where it comes.
    """

    def __init__(self, control: AdmissionControl, principal: Principal, place: Place) -> None:
        self.principal = principal
        self.reservation = NOTHING
        self.is_large = self.is_brief = False
        self._control = control
        self._place = place
        self._prompt: Prompt | None = None
        self._told: dict[str, str] = {}
        self._waiting: tuple[FlexLine, Waiting] | None = None
        self._is_billed = self._is_kept = False

    @property
    def headers(self) -> dict[str, str]:
        """Its limits when it was let in (rows T-10, S-20), and where it stood in line."""
        return {**self.reservation.headers, **self._told}

    @property
    def comment(self) -> bytes:
        """Where it stands in line now, as a comment of a stream."""
        if self._waiting is None:
            return KEEP_ALIVE
        line, me = self._waiting
        return line.comment(me)

    async def begin(self, prompt: Prompt) -> Prompt:
        """Take room for a prompt's calls, and its tokens: from here on its use is billed.

        Returns:
            The prompt; for flex, at an engine that has room.

        Raises:
            Overloaded: Too many calls are in flight, of its project or of all.
            NoFlexRoom: It asks for flex, and no engine had spare capacity for as long as it waits.
            TokensRateLimited: There are too few tokens now.
        """
        control, num_calls = self._control, len(prompt.choices)
        if prompt.request_class is RequestClass.FLEX:
            prompt = await self._with_flex_room(prompt)
        control.room.enter(prompt.principal.project_id, prompt.num_places)
        if prompt.request_class is RequestClass.FLEX:
            control.flex_room.enter(prompt.route.member, num_calls)
        control.idle.clear()
        control.metrics.engine_calls_in_flight.inc(num_calls)
        self._prompt = prompt
        await self.reserve(prompt.tokens)
        self._is_billed = True
        return prompt

    async def reserve(self, tokens: int) -> None:
        """Take the tokens of a body that was checked.

        Raises:
            TokensRateLimited: There are too few now.
        """
        self.reservation = await self._control.limiter.reserve_tokens(
            self.principal, self.reservation, tokens
        )

    def keep(self) -> None:
        """What is reserved is used, though not by this request: it becomes a row."""
        self._is_kept = True

    async def leave(self) -> None:
        """Bill what engines served, or give back what was taken; the place comes free."""
        control, prompt = self._control, self._prompt
        if prompt is not None:
            self._leave_room(prompt)
        try:
            if prompt is not None and self._is_billed:
                used = prompt.used()
                control.usage.add(self.principal, prompt.model, prompt.request_class, used)
                control.limiter.settle(self.reservation, used.total_tokens)
            elif not self._is_kept:
                await control.limiter.release(self.reservation, with_request=not self.is_large)
        finally:
            self._place.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    async def _with_flex_room(self, prompt: Prompt) -> Prompt:
        """Find an engine with room; stand in line for as long as the key or its project allows."""
        control, wait_s = self._control, self.principal.flex_wait_s
        line = control.flex_lines[prompt.model]
        if not len(line):
            with suppress(NoFlexRoom):
                return self._at_flex_room(prompt)
        if wait_s:
            with line.standing(self.principal.project_id) as me:
                self._waiting = line, me
                self._told = line.told(line.place(me))
                control.metrics.flex_waiting.inc()
                try:
                    async with asyncio.timeout(wait_s):
                        return await line.room(me, partial(self._at_flex_room, prompt))
                except TimeoutError:
                    pass
                finally:
                    control.metrics.flex_waiting.dec()
                    self._waiting = None
        control.metrics.flex_refused.inc()
        raise NoFlexRoom(NO_ROOM, headers=line.refusal())

    def _at_flex_room(self, prompt: Prompt) -> Prompt:
        control = self._control
        route = control.flex_room.choose(
            control.engines, prompt.route, prompt.model, len(prompt.choices)
        )
        return prompt if route is prompt.route else replace(prompt, route=route)

    def _leave_room(self, prompt: Prompt) -> None:
        control, num_calls = self._control, len(prompt.choices)
        if prompt.request_class is RequestClass.FLEX:
            control.flex_room.leave(prompt.route.member, num_calls)
        control.metrics.engine_calls_in_flight.dec(num_calls)
        if control.room.leave(prompt.principal.project_id, prompt.num_places):
            control.idle.set()
