"""Rate limits of a request: reserve before it goes to an engine, settle when its end is known.

    enter ── key requests, project requests, one token of each: all or none, before the body is read
       │       refused → RateLimited, TokensRateLimited (429 with a time), QuotaExceeded
       ▼
    reserve_tokens ── the other tokens, once the body is known
       ▼
    the engine answers, fails, or its caller goes away
       ▼
    settle ── tokens really used instead of those reserved; gathered and sent in the background

Requests without limits touch nothing. While Valkey cannot be reached, buckets of this process
stand in for it, half full to begin with (decision 0054).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from redis.exceptions import RedisError

from api.errors import QuotaExceeded, RateLimited, TokensRateLimited
from gateway.auth.principal import Principal
from gateway.limits.buckets import (
    PERIOD_US,
    Buckets,
    Charge,
    MemoryBuckets,
    Taken,
    cost_us,
    remaining,
    wait_us,
)
from gateway.limits.rates import Kind, Limit, Rates, duration
from gateway.observability.metrics import Metrics

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""How long the shared buckets are left alone after they could not be reached."""

SETTLE_S: Final = 0.02
_UNREACHABLE = (RedisError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a request took.

    Attributes:
        headers: The six headers of row T-10, for the tightest limit of each kind.
        tokens: Tokens reserved.
        token_limits: Buckets that these tokens came from, with their limits.
        buckets: Where.
        requests: What counted the request itself.
    """

    headers: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    token_limits: tuple[tuple[str, int], ...] = ()
    buckets: Buckets | None = None
    requests: tuple[Charge, ...] = ()


NOTHING: Final = Reservation()


class RateLimiter:
    """The limits of one gateway.

    Args:
        shared: Buckets that every gateway shares.
        metrics: Where refusals and fallbacks are counted.
        key_default: Limits of keys that have none of their own.
        project_default: The same of projects.
        now_s: Seconds that never go back.

    Attributes:
        due: Set while something is not settled.
    """

    def __init__(
        self,
        shared: Buckets,
        metrics: Metrics,
        *,
        key_default: Rates,
        project_default: Rates,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared = shared
        self._metrics = metrics
        self._key_default = key_default
        self._project_default = project_default
        self._now_s = now_s
        self._local: Buckets | None = None
        self._retry_at_s = -math.inf
        self._pending: dict[Buckets, dict[str, int]] = {}
        self.due = asyncio.Event()

    async def reserve(self, principal: Principal, tokens: int) -> Reservation:
        """Take one request and so many tokens from every limit that applies.

        Raises:
            RateLimited: Too many requests or tokens; nothing was taken.
            QuotaExceeded: A limit is zero.
        """
        return await self.enter(principal, tokens)

    async def reserve_tokens(
        self, principal: Principal, entered: Reservation, tokens: int
    ) -> Reservation:
        """Make what a request took when it entered the tokens that its body may use.

        Raises:
            TokensRateLimited: Too many tokens; what it took when it entered is still taken.
        """
        if entered.buckets is None or not entered.token_limits:
            return entered
        limits = self._limits(principal, tokens)
        charges = [
            Charge(
                _bucket(principal, limit),
                0
                if limit.kind == "requests"
                else cost_us(tokens, limit.per_minute) - cost_us(entered.tokens, limit.per_minute),
            )
            for limit in limits
        ]
        buckets, taken = await self.take(charges)
        headers = _headers(limits, taken)
        if not taken.allowed:
            raise self._refusal(limits, charges, taken, headers)
        return replace(entered, headers=headers, tokens=tokens, buckets=buckets)

    async def release(self, entered: Reservation, *, with_request: bool) -> None:
        """Give back what a request took that goes no further."""
        if entered.buckets is None:
            return
        self.settle(entered, 0)
        if with_request and entered.requests:
            await self.give_back(entered.buckets, list(entered.requests))

    async def enter(self, principal: Principal, tokens: int = 1) -> Reservation:
        """Take one request, and the tokens that are known already.

        Raises:
            RateLimited: Too many requests or tokens; nothing was taken.
            QuotaExceeded: A limit is zero.
        """
        limits = self._limits(principal, tokens)
        if not limits:
            return NOTHING
        for limit in limits:
            if limit.per_minute == 0:
                self._metrics.rate_limited.labels(limit.scope, limit.kind).inc()
                raise QuotaExceeded(
                    f"You exceeded your current quota: {limit.whose} may use no {limit.kind}."
                )
        charges = [
            Charge(_bucket(principal, limit), cost_us(limit.cost, limit.per_minute))
            for limit in limits
        ]
        buckets, taken = await self.take(charges)
        headers = _headers(limits, taken)
        if not taken.allowed:
            raise self._refusal(limits, charges, taken, headers)
        return Reservation(
            headers,
            tokens,
            tuple(
                (charge.key, limit.per_minute)
                for limit, charge in zip(limits, charges, strict=True)
                if limit.kind == "tokens"
            ),
            buckets,
            tuple(
                charge
                for limit, charge in zip(limits, charges, strict=True)
                if limit.kind == "requests"
            ),
        )

    async def used(self, project_id: str, rates: Rates) -> dict[Kind, tuple[int, int]]:
        """How much of a project's limits a minute is used now: kind -> used, limit."""
        project = rates.over(self._project_default)
        found: tuple[tuple[Kind, int | None], ...] = (
            ("requests", project.requests_per_minute),
            ("tokens", project.tokens_per_minute),
        )
        limits = {kind: limit for kind, limit in found if limit is not None}
        if not any(limits.values()):
            return {kind: (0, limit) for kind, limit in limits.items()}
        charges = [Charge(f"coserve:rate:{project_id}:{kind}", 0) for kind in limits]
        _, taken = await self.take(charges)
        return {
            kind: (limit - remaining(backlog_us, limit), limit)
            for (kind, limit), backlog_us in zip(limits.items(), taken.backlogs_us, strict=True)
        }

    def settle(self, reservation: Reservation, used: int) -> None:
        """Count the tokens really used; the rest of what was reserved flows back at once."""
        if reservation.buckets is None or used == reservation.tokens:
            return
        pending = self._pending.setdefault(reservation.buckets, {})
        for key, per_minute in reservation.token_limits:
            difference_us = cost_us(used, per_minute) - cost_us(reservation.tokens, per_minute)
            pending[key] = pending.get(key, 0) + difference_us
        self.due.set()

    async def flush_gathered(self) -> None:
        """Send what comes within `SETTLE_S`."""
        await asyncio.sleep(SETTLE_S)
        await self.flush()

    async def flush(self) -> None:
        """Send what is not settled yet; what cannot be sent flows back by itself in a minute."""
        self.due.clear()
        pending, self._pending = self._pending, {}
        for buckets, differences in pending.items():
            charges = [Charge(key, us) for key, us in differences.items() if us]
            if not charges:
                continue
            try:
                await buckets.settle(charges)
            except _UNREACHABLE as error:
                logger.warning("tokens not settled: %s", type(error).__name__)

    async def give_back(self, buckets: Buckets, charges: list[Charge]) -> None:
        """Undo charges; those that cannot be sent flow back by themselves in a minute."""
        try:
            await buckets.settle([Charge(one.key, -one.cost_us) for one in charges])
        except _UNREACHABLE as error:
            logger.warning("charges not given back: %s", type(error).__name__)

    def _limits(self, principal: Principal, tokens: int) -> list[Limit]:
        limits: list[Limit] = []
        key = principal.key_rates.over(self._key_default)
        project = principal.project_rates.over(self._project_default)
        if key.requests_per_minute is not None:
            limits.append(Limit("key", "requests", key.requests_per_minute, 1))
        if project.requests_per_minute is not None:
            limits.append(Limit("project", "requests", project.requests_per_minute, 1))
        if key.tokens_per_minute is not None:
            limits.append(Limit("key", "tokens", key.tokens_per_minute, tokens))
        if project.tokens_per_minute is not None:
            limits.append(Limit("project", "tokens", project.tokens_per_minute, tokens))
        return limits

    async def take(self, charges: list[Charge]) -> tuple[Buckets, Taken]:
        """Take charges where limits are kept now; where that was, and what came of it."""
        if self._now_s() >= self._retry_at_s:
            try:
                taken = await self._shared.take(charges)
            except _UNREACHABLE as error:
                if self._local is None:
                    logger.warning("rate limits are kept here: %s", type(error).__name__)
                    self._local = MemoryBuckets(lost=True)
                self._retry_at_s = self._now_s() + RETRY_S
            else:
                self._local = None
                return self._shared, taken
        local = self._local or MemoryBuckets(lost=True)
        self._local = local
        self._metrics.rate_limit_fallbacks.inc()
        return local, await local.take(charges)

    def _refusal(
        self, limits: list[Limit], charges: list[Charge], taken: Taken, headers: dict[str, str]
    ) -> RateLimited:
        """The error for the limit that makes the caller wait longest."""
        waits_us = [
            wait_us(backlog_us, charge.cost_us)
            for backlog_us, charge in zip(taken.backlogs_us, charges, strict=True)
        ]
        longest = max(range(len(limits)), key=waits_us.__getitem__)
        limit, backlog_us = limits[longest], taken.backlogs_us[longest]
        self._metrics.rate_limited.labels(limit.scope, limit.kind).inc()
        error = TokensRateLimited if limit.kind == "tokens" else RateLimited
        if limit.cost > limit.per_minute:
            # However long one waits, it does not fit.
            return error(
                f"Request too large for {limit.whose} on {limit.kind} per minute: "
                f"limit {limit.per_minute}, requested {limit.cost}. Ask for a shorter answer or "
                "send a shorter prompt.",
                headers={**headers, "retry-after": "60", "x-should-retry": "false"},
            )
        used = limit.per_minute - remaining(backlog_us, limit.per_minute)
        wait_ms = -(-waits_us[longest] // 1000)
        return error(
            f"Rate limit reached for {limit.whose} on {limit.kind} per minute: "
            f"limit {limit.per_minute}, used {used}, requested {limit.cost}. "
            f"Please try again in {duration(waits_us[longest])}.",
            headers={
                **headers,
                "retry-after": str(-(-wait_ms // 1000)),
                "retry-after-ms": str(wait_ms),
            },
        )


def _bucket(principal: Principal, limit: Limit) -> str:
    owner = principal.key_id if limit.scope == "key" else principal.project_id
    return f"coserve:rate:{owner}:{limit.kind}"


def _headers(limits: list[Limit], taken: Taken) -> dict[str, str]:
    headers: dict[str, str] = {}
    for kind in ("requests", "tokens"):
        found = [
            (remaining(backlog_us, limit.per_minute), limit.per_minute, backlog_us)
            for limit, backlog_us in zip(limits, taken.backlogs_us, strict=True)
            if limit.kind == kind
        ]
        if found:
            left, per_minute, backlog_us = min(found)
            headers[f"x-ratelimit-limit-{kind}"] = str(per_minute)
            headers[f"x-ratelimit-remaining-{kind}"] = str(left)
            headers[f"x-ratelimit-reset-{kind}"] = duration(min(backlog_us, PERIOD_US * 2))
    return headers
