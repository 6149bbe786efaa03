"""Requests that were at an engine when it was lost, and whether their like may run again.

A request that ends its engine would end the next one too, wherever it is sent, and take along
whatever runs there. So each loss counts for all requests that were there. They are known by a
digest of what their engine saw. Rows have a quarantine of their own (batch/run/quarantine.py).

    losses   one like it that comes      one that was there at the last loss
    ──────   ─────────────────────────   ───────────────────────────────────────────────────────
    0, 1     runs with all others        with the 1st: elsewhere once, before its first token
    2        refused for `HOLD_S`, then  refused: `engine_failure`, which clients do not repeat
             one at a time of all such
    3        refused                     refused, until nothing was lost with it for a day

An answer ends all suspicion: who was beside a request that kills needs one, and the killer never
gets one. What was sent to an engine before that was lost was there at one and the same loss,
however many like it there were.

All gateways share the record, which is in the database; each reads it every `POLL_INTERVAL_S`. A
loss is written before its request is answered or sent elsewhere. While the database is away a
gateway goes by its own losses, and writes them later. Without suspects no request is looked at.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api.errors import EngineNotReached, EngineUnavailable, RequestQuarantined
from engine_adapter.client.encoding import digest_of
from gateway.prompts.prompt import Prompt
from store.failures import AWAY
from store.repositories import suspect as suspects
from store.repositories.suspect import FORGET_S, MAX_SUSPECTS, Loss
from store.session import Database

TRIAL_LOSSES: Final = 2
FINAL_LOSSES: Final = 3
HOLD_S: Final = 30.0
TRIAL_S: Final = 60.0
"""A trial whose end nobody notes is over after so long."""

POLL_INTERVAL_S: Final = 1.0
WRITE_S: Final = 2.0
"""How long a request waits until its loss is written."""

LOST_TWICE: Final = (
    "An engine was lost each time it ran this request, {num} times so far. It may be what ends "
    "engines, so it is not tried again by itself."
)


@dataclass(frozen=True, slots=True)
class _Suspect:
    num_losses: int
    engine_url: str
    lost_at_s: float


@dataclass(frozen=True, slots=True)
class _Noted:
    digest: bytes
    engine_url: str
    sent_at_s: float
    lost_at_s: float


class Quarantine:
    """What one gateway process knows of suspects. Times are of its monotonic clock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[bytes, _Suspect] = {}
        self._unwritten: list[_Noted] = []
        self._writing = asyncio.Lock()

    async def poll(self) -> None:
        """Write what is not written, and read what all gateways know."""
        async with self._writing:
            await self._write_and_read()

    async def _write_and_read(self) -> None:
        noted = self._unwritten[:]
        now_s = time.monotonic()
        losses = [
            Loss(one.digest, one.engine_url, now_s - one.sent_at_s, now_s - one.lost_at_s)
            for one in noted
        ]
        try:
            async with asyncio.timeout(WRITE_S), self._database.unit_of_work() as session:
                if losses:
                    await suspects.note(session, losses)
                found = await suspects.known(session)
        except AWAY:
            return
        del self._unwritten[: len(noted)]
        now_s = time.monotonic()
        self._known = {
            one.digest: _Suspect(one.num_losses, one.engine_url, now_s - one.lost_s)
            for one in found
        }
        for later in self._unwritten:
            self._count(later)

    async def check(self, prompt: Prompt) -> None:
        """Let a request in, unless its like was there when engines were lost.

        Raises:
            RequestQuarantined: It may not run, or not now.
        """
        if not self._known:
            return
        suspected = [one for one in _digests(prompt) if self._losses(one) >= TRIAL_LOSSES]
        if not suspected:
            return
        num = max(map(self._losses, suspected))
        if num >= FINAL_LOSSES or not await self._may_try(suspected):
            raise self._refusal(num, suspected)

    async def note_lost(self, prompt: Prompt, engine_url: str, sent_at_s: float) -> None:
        """The engine was lost while a request was there.

        Args:
            prompt: The request.
            engine_url: The engine.
            sent_at_s: When it was sent there.

        Raises:
            RequestQuarantined: It may not be tried again.
        """
        digests = _digests(prompt)
        now_s = time.monotonic()
        for digest in digests:
            noted = _Noted(digest, engine_url, sent_at_s, now_s)
            self._count(noted)
            if len(self._unwritten) < MAX_SUSPECTS:
                self._unwritten.append(noted)
        # What the database does not do is told by the look that follows: this request goes on.
        with suppress(TimeoutError, SQLAlchemyError):
            async with asyncio.timeout(WRITE_S), self._writing:
                if self._unwritten:  # else whoever wrote before has written these too
                    await self._write_and_read()
        num = max(map(self._losses, digests))
        if num >= TRIAL_LOSSES:
            raise self._refusal(num, digests)

    async def note_answered(self, prompt: Prompt) -> None:
        """An engine has answered a request."""
        if not self._known:
            return
        found = [one for one in _digests(prompt) if one in self._known]
        if not found:
            return
        for digest in found:
            self._known.pop(digest, None)
        try:
            async with asyncio.timeout(WRITE_S), self._database.unit_of_work() as session:
                await suspects.acquit(session, found)
        except (SQLAlchemyError, OSError):
            return  # its next answer says it again

    def _losses(self, digest: bytes) -> int:
        found = self._known.get(digest)
        return found.num_losses if found else 0

    def _count(self, noted: _Noted) -> None:
        """As the record counts (`suspects.note`)."""
        found = self._known.get(noted.digest)
        if found is None:
            if len(self._known) < MAX_SUSPECTS:
                self._known[noted.digest] = _Suspect(1, noted.engine_url, noted.lost_at_s)
        elif found.engine_url != noted.engine_url or found.lost_at_s < noted.sent_at_s:
            self._known[noted.digest] = _Suspect(
                found.num_losses + 1, noted.engine_url, noted.lost_at_s
            )

    async def _may_try(self, digests: Sequence[bytes]) -> bool:
        if self._wait_s(digests) > 0:
            return False
        try:
            async with asyncio.timeout(WRITE_S), self._database.unit_of_work() as session:
                return await suspects.begin_trial(session, digests, hold_s=HOLD_S, trial_s=TRIAL_S)
        except (SQLAlchemyError, OSError):
            return False  # nobody could say whether it is the only one

    def _wait_s(self, digests: Sequence[bytes]) -> float:
        """How long it is until one of these may be tried."""
        lost_at_s = max(self._known[one].lost_at_s for one in digests if one in self._known)
        return lost_at_s + HOLD_S - time.monotonic()

    def _refusal(self, num_losses: int, digests: Sequence[bytes]) -> RequestQuarantined:
        message = LOST_TWICE.format(num=num_losses)
        if num_losses >= FINAL_LOSSES:
            return RequestQuarantined(f"{message} It is refused for {FORGET_S / 3600:.0f} hours.")
        wait_s = max(1, math.ceil(self._wait_s(digests)))
        return RequestQuarantined(
            f"{message} Send it once more after {wait_s} seconds: an answer ends the suspicion.",
            headers={"retry-after": str(wait_s)},
        )


def is_loss(error: EngineUnavailable) -> bool:
    """Whether an engine was lost while the request was there: its connection broke."""
    cause = error.__cause__
    return (
        isinstance(cause, OSError)
        and not isinstance(cause, TimeoutError)
        and not isinstance(error, EngineNotReached)
    )


def _digests(prompt: Prompt) -> list[bytes]:
    """What engines saw of a request: one for each choice that differs."""
    calls = [choice.call for choice in prompt.choices]
    return list({digest_of(call.path, call.body): None for call in calls})
