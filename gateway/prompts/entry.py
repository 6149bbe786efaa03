"""Letting a prompt in before its body is read: limits are asked before anything is paid for them.

    enter ── bytes announced, requests at once, requests a minute, tokens left: 429 costs no body
       ▼
    the body is read, parsed and checked (`gateway.http.parsing`)
       ▼
    reserve ── the tokens that it may use
       ▼
    the bill settles; or `give_back`, where the request was refused

A refused body gives its request back only if it was small: parsing a large one is work.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request

from api.errors import RateLimited
from gateway.auth.principal import Principal
from gateway.limits.at_once import Place, RequestsAtOnce
from gateway.limits.buckets import PERIOD_US, Charge, MemoryBuckets, cost_us, wait_us
from gateway.limits.limiter import RateLimiter, Reservation

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this length are parsed where they come, and are not counted by their bytes."""


class Entry:
    """What one request took before its body was read.

    Invariant: the place and the request are the bill's once they were handed over, or go back by
    `give_back`.
    """

    def __init__(
        self, limiter: RateLimiter, principal: Principal, place: Place, taken: Reservation
    ) -> None:
        self._limiter = limiter
        self._taken = taken
        self._place: Place | None = place
        self.principal = principal
        self.is_large = False

    async def reserve(self, tokens: int) -> Reservation:
        """Take the tokens of a body that was checked.

        Raises:
            TokensRateLimited: There are too few now; what was taken stays to be given back.
        """
        return await self._limiter.reserve_tokens(self.principal, self._taken, tokens)

    def hand_over(self) -> Place:
        """The place, which is the bill's from here on, as is all else."""
        assert self._place is not None, "handed over twice"
        place, self._place = self._place, None
        return place

    async def give_back(self) -> None:
        """The request goes no further; nothing, if it was handed over."""
        if self._place is None:
            return
        self.hand_over().leave()
        await self._limiter.release(self._taken, with_request=not self.is_large)


class Entrance:
    """Lets prompts in.

    Args:
        limiter: Requests and tokens a minute.
        at_once: Requests at the same time.
        bytes_per_minute: Bytes of large bodies that a project may send to this process.
    """

    def __init__(
        self, limiter: RateLimiter, at_once: RequestsAtOnce, bytes_per_minute: int
    ) -> None:
        self._limiter = limiter
        self._at_once = at_once
        self._bytes_per_minute = bytes_per_minute
        self._bytes = MemoryBuckets()

    async def enter(self, request: Request, principal: Principal) -> Entry:
        """Take what can be known from the head of a request.

        Raises:
            RateLimited: Too many requests, or too many bytes; nothing was taken.
            TokensRateLimited: No token is left.
            QuotaExceeded: A limit is zero.
        """
        length = announced(request)
        place = await self._at_once.enter(principal)
        try:
            taken = await self._limiter.enter(principal)
        except BaseException:
            place.leave()
            raise
        entry = Entry(self._limiter, principal, place, taken)
        try:
            await self.count_bytes(principal, length or 0)
        except BaseException:
            await entry.give_back()
            raise
        entry.is_large = length is None or length > SMALL_BYTES
        return entry

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


def announced(request: Request) -> int | None:
    """The length that a request's head gives its body; none where it comes in chunks or coded."""
    said = request.headers.get("content-length")
    if said is not None and "content-encoding" not in request.headers:
        return int(said)  # checked by `BodyLimits`
    is_open = said is not None or "transfer-encoding" in request.headers
    return None if is_open else 0
