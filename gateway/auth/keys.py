"""From an Authorization header to a principal.

Looking a key up costs a query; the answer is kept for `KEPT_S`, so that a revoked key stops
working within that time. Unknown keys are kept for a shorter time and take no room for long: a
stranger can fill neither the cache nor the database's connections with the same wrong key.

What is in flight when its key ends is ended too, within two periods of the loop in
`gateway.lifespan` (decision 0053): a stolen key must not go on drinking from an open stream.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from sqlalchemy.exc import SQLAlchemyError

from engine_adapter.wire.errors import AuthenticationFailed
from gateway.auth.principal import Principal
from gateway.limits.rates import Rates
from store.repositories import key as keys
from store.session import Database

KEPT_S = 4.0
UNKNOWN_KEPT_S = 1.0
MAX_KEPT = 10_000
NOTED_S: Final = 60.0
"""How exact `last_used_at` is."""

ENDED: Final = "The API key of this request was revoked or has expired."
_MAX_KEY_CHARS = 256
T = TypeVar("T")


class KeyRing:
    """Looks keys up and remembers them for a few seconds.

    Invariant: an entry is used only before its own instant of expiry.
    """

    def __init__(self, database: Database, now_s: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._now_s = now_s
        self._kept: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()
        self._open: dict[str, set[Callable[[], None]]] = {}
        self._used: set[str] = set()
        self._written_s: dict[str, float] = {}

    async def principal(self, authorization: str | None) -> Principal:
        """The principal of a header.

        Raises:
            AuthenticationFailed: No bearer token, or no usable key (contract rows T-02 to T-04).
        """
        token = bearer_token(authorization)
        key_hash = keys.hash_of(token)
        kept = self._kept.get(key_hash)
        if kept is not None and kept[0] > self._now_s():
            principal = kept[1]
        else:
            principal = await self._look_up(key_hash)
        if principal is None:
            raise AuthenticationFailed(f"Incorrect API key provided: {masked(token)}.")
        self._used.add(principal.key_id)
        return principal

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
        except (SQLAlchemyError, OSError):
            return  # asked again in a second; new requests are refused meanwhile
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
        except (SQLAlchemyError, OSError):
            return  # they stay noted
        self._used -= due
        self._written_s = {
            key_id: at_s for key_id, at_s in self._written_s.items() if now_s - at_s < NOTED_S
        } | dict.fromkeys(due, now_s)

    async def _look_up(self, key_hash: bytes) -> Principal | None:
        # The instant before the query: what is revoked after it is at most KEPT_S old.
        now_s = self._now_s()
        async with self._database.unit_of_work() as session:
            found = await keys.find_by_hash(session, key_hash)
        principal = None
        if found is not None:
            key, project = found
            principal = Principal(
                project_id=project.id,
                key_id=key.id,
                scopes=frozenset(key.scopes),
                role=key.role,
                organization_id=project.organization_id,
                key_name=key.name,
                key_rates=Rates(key.requests_per_minute, key.tokens_per_minute),
                project_rates=Rates(project.requests_per_minute, project.tokens_per_minute),
            )
        self._kept[key_hash] = (now_s + (KEPT_S if principal else UNKNOWN_KEPT_S), principal)
        self._kept.move_to_end(key_hash)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return principal


def bearer_token(authorization: str | None) -> str:
    """The token of an Authorization header.

    Raises:
        AuthenticationFailed: There is none.
    """
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _MAX_KEY_CHARS:
        raise AuthenticationFailed(
            "You didn't provide an API key. Provide it in an Authorization header using Bearer "
            "auth (Authorization: Bearer YOUR_KEY)."
        )
    return token


def masked(token: str) -> str:
    """A key as its owner may recognise it, and nobody else (contract row T-04)."""
    return f"{token[:3]}***{token[-2:]}" if len(token) >= 16 else "***"
