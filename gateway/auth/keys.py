"""From an Authorization header to a principal.

Looking a key up costs a query; the answer is kept for `KEPT_S`, so that a revoked key stops
working within that time. Unknown keys are kept for a shorter time and apart: a stranger can fill
neither the cache nor the database's connections with wrong keys.

While the database is away, a key that was found usable goes on being so for `stale_s`, with the
project and the limits it had; one that was found to have ended stays ended (decision 0113).

What is in flight when its key ends is ended too, within two periods of the loop in
`gateway.lifespan`: a stolen key must not go on drinking from an open stream.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from sqlalchemy.exc import SQLAlchemyError

from api.errors import AuthenticationFailed
from gateway.auth.principal import Principal
from gateway.http.per_address_limits import UnknownKeyLimiter
from store.failures import AWAY
from store.repositories import key as keys
from store.repositories import statements
from store.session import Database

KEPT_S = 4.0
UNKNOWN_KEPT_S = 1.0
MAX_KEPT = 10_000
ASK_S: Final = 0.5
"""Who has a kept answer waits no longer for a new one."""

AWAY_S: Final = 1.0
"""How long the database is not asked again after it failed to answer."""

STALE_S: Final = 300.0
NOTED_S: Final = 60.0
"""How exact `last_used_at` is."""

ENDED: Final = "The API key of this request was revoked or has expired."
_MAX_KEY_CHARS = 256
UNLIMITED: Final = 1_000_000
T = TypeVar("T")


KEY_HEADERS: Final = ("api-key", "x-api-key")
"""Azure's clients and Anthropic's send the key in these."""


@dataclass(frozen=True)
class _Usable:
    """A key that was found usable, fresh until the one instant and of some use until the other."""

    principal: Principal
    fresh_until_s: float
    stale_until_s: float


class KeyRing:
    """Looks keys up and remembers them for a few seconds, or while the database is away.

    Invariant: a key is in one of `_usable` and `_wrong`; which of them, the newest answer said.
    """

    def __init__(
        self,
        database: Database,
        now_s: Callable[[], float] = time.monotonic,
        *,
        unknown: UnknownKeyLimiter | None = None,
        stale_s: float = STALE_S,
    ) -> None:
        self._database = database
        self._unknown = unknown or UnknownKeyLimiter(UNLIMITED)
        self._now_s = now_s
        self._stale_s = stale_s
        self._usable: OrderedDict[bytes, _Usable] = OrderedDict()
        self._wrong: OrderedDict[bytes, float] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[None]] = {}
        self._away_until_s = -math.inf
        self._open: dict[str, set[Callable[[], None]]] = {}
        self._used: set[str] = set()
        self._written_s: dict[str, float] = {}

    async def principal(self, headers: Mapping[str, str], address: str | None = None) -> Principal:
        """The principal of a request's headers.

        Args:
            headers: The request's; the key stands in one of three.
            address: Where the request came from: whoever shows no known key has a limit there.

        Raises:
            AuthenticationFailed: No usable key in any (rows T-02 to T-04).
            RateLimited: Too many requests without a known key came from the address.
        """
        try:
            token = key_in(headers)
        except AuthenticationFailed:
            await self._unknown.count(address)
            raise
        key_hash = keys.hash_of(token)
        kept = self._usable.get(key_hash)
        if kept is not None:
            # Known, or was a few seconds ago: what strangers do at its address is not its fault.
            principal = await self._renewed(key_hash, kept)
        else:
            await self._unknown.count(address)
            principal = await self._found(key_hash)
            if principal is not None:
                await self._unknown.forgive(address)
        if principal is None:
            raise AuthenticationFailed(f"Incorrect API key provided: {masked(token)}.")
        self._used.add(principal.key_id)
        return principal

    def project_of(self, headers: Mapping[str, str]) -> str:
        """The project of a request's key, if it was found usable before; costs no query."""
        try:
            kept = self._usable.get(keys.hash_of(key_in(headers)))
        except AuthenticationFailed:
            return ""
        return "" if kept is None else kept.principal.project_id

    @contextmanager
    def watched(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the key ends inside the block."""
        ends = self._open.setdefault(principal.key_id, set())
        ends.add(end)
        try:
            yield
        finally:
            ends.discard(end)
            if not ends:
                self._open.pop(principal.key_id, None)

    async def while_usable(self, principal: Principal, work: Awaitable[T]) -> T:
        """Do `work` unless its key ends; then it is cancelled.

        Costs no task: this one is cancelled, and the cancellation turned into the error.

        Raises:
            AuthenticationFailed: The key was revoked, has expired, or its project was archived.
        """
        task = cast("asyncio.Task[object]", asyncio.current_task())
        cancelled_before = task.cancelling()
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                task.cancel()

        with self.watched(principal, end):
            try:
                return await work
            except asyncio.CancelledError:
                # Somebody else's cancellation at the same time goes first.
                if ended and task.uncancel() <= cancelled_before:
                    raise AuthenticationFailed(ENDED) from None
                raise

    async def end_revoked(self) -> None:
        """End what is in flight for keys that have ended; one query, if anything is in flight."""
        if not self._open:
            return
        try:
            async with self._database.unit_of_work() as session:
                ended = await keys.unusable(session, list(self._open))
        except AWAY:
            return  # asked again in a second
        for key_hash, kept in list(self._usable.items()) if ended else ():
            if kept.principal.key_id in ended:
                self._note_wrong(key_hash, self._now_s())
        for key_id in ended:
            for end in tuple(self._open.get(key_id, ())):
                end()

    async def note_uses(self) -> None:
        """Write which keys were used, for each at most once in `NOTED_S`."""
        now_s = self._now_s()
        due = {k for k in self._used if now_s - self._written_s.get(k, -math.inf) >= NOTED_S}
        if not due:
            return
        try:
            async with self._database.unit_of_work() as session:
                await keys.touch(session, sorted(due))
        except AWAY:
            return  # they stay noted
        self._used -= due
        self._written_s = {
            key_id: at_s for key_id, at_s in self._written_s.items() if now_s - at_s < NOTED_S
        } | dict.fromkeys(due, now_s)

    async def close(self) -> None:
        asking = list(self._asking.values())
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _renewed(self, key_hash: bytes, kept: _Usable) -> Principal | None:
        """What is known of a key that was usable, asked anew where that is too old."""
        now_s = self._now_s()
        if now_s < kept.fresh_until_s:
            return kept.principal
        if now_s >= kept.stale_until_s:
            return await self._look_up(key_hash)
        if key_hash not in self._asking and now_s >= self._away_until_s:
            # In a task of its own: a wait for a database that hangs cannot be cut short.
            asking = self._asking[key_hash] = asyncio.ensure_future(self._ask(key_hash))
            answered, _ = await asyncio.wait([asking], timeout=ASK_S)
            if not answered:
                self._away_until_s = self._now_s() + AWAY_S
        newest = self._usable.get(key_hash)
        return None if newest is None else newest.principal

    async def _ask(self, key_hash: bytes) -> None:
        try:
            await self._look_up(key_hash)
        except (SQLAlchemyError, OSError):
            self._away_until_s = self._now_s() + AWAY_S
        finally:
            del self._asking[key_hash]

    async def _found(self, key_hash: bytes) -> Principal | None:
        """What is known of a key that was not usable before, or never seen."""
        wrong_until_s = self._wrong.get(key_hash)
        if wrong_until_s is not None and self._now_s() < wrong_until_s:
            return None
        try:
            return await self._look_up(key_hash)
        except (SQLAlchemyError, OSError):
            if wrong_until_s is not None:
                return None  # it had ended, or there was none
            raise

    async def _look_up(self, key_hash: bytes) -> Principal | None:
        # The instant before the query: what is revoked after it is at most KEPT_S old.
        now_s = self._now_s()
        ends_in_s = math.inf
        async with self._database.unit_of_work() as session:
            found = await keys.find_by_hash(session, key_hash)
            if found is not None and found[0].expires_at is not None:
                left = found[0].expires_at - await statements.now(session)
                ends_in_s = left.total_seconds()
        if found is None:
            self._note_wrong(key_hash, now_s)
            return None
        key, project = found
        principal = Principal.of(key, project)
        self._wrong.pop(key_hash, None)
        self._usable[key_hash] = _Usable(
            principal, now_s + KEPT_S, now_s + min(self._stale_s, ends_in_s)
        )
        _bound(self._usable, key_hash)
        return principal

    def _note_wrong(self, key_hash: bytes, now_s: float) -> None:
        self._usable.pop(key_hash, None)
        self._wrong[key_hash] = now_s + UNKNOWN_KEPT_S
        _bound(self._wrong, key_hash)


def _bound(kept: OrderedDict[bytes, Any], newest: bytes) -> None:
    """Forget what was noted longest ago."""
    kept.move_to_end(newest)
    while len(kept) > MAX_KEPT:
        kept.popitem(last=False)


def key_in(headers: Mapping[str, str]) -> str:
    """The key in an Authorization header, or in one of those that other services read.

    Raises:
        AuthenticationFailed: There is none.
    """
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    token = token.strip() if scheme.lower() == "bearer" else ""
    for name in () if token else KEY_HEADERS:
        token = token or headers.get(name, "").strip()
    if not token or len(token) > _MAX_KEY_CHARS:
        raise AuthenticationFailed(
            "You didn't provide an API key. Provide it in an Authorization header using Bearer "
            "auth (Authorization: Bearer YOUR_KEY)."
        )
    return token


def masked(token: str) -> str:
    """A key as its owner may recognise it, and nobody else (row T-04)."""
    return f"{token[:3]}***{token[-2:]}" if len(token) >= 16 else "***"
