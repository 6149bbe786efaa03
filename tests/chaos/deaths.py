"""One kill -9 after the other, each with rows in flight, and the time to the next finished line."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tests.chaos.installation import Installation, wall_s
from tests.chaos.observer import POLL_INTERVAL_S, InFlight, Observer
from tests.chaos.victims import JUMPS_S, Kind, find
from tests.fixtures.clock_jump import jump

FLIGHT_LIMIT_S = 90.0
RECOVERY_LIMIT_S = 180.0
START_LIMIT_S = 180.0
LONGEST_PAUSE_S = 1.5
OUTAGE_S = (2.0, 5.0)


@dataclass
class Death:
    """What one kill did.

    Attributes:
        at_s: When, seconds since the epoch.
        next_line_s: From the kill to the start of the write of the next finished line.
        released_s: Of an engine: from its death until no dispatcher held a row any more.
        ready_s: Of an engine, or of a machine that runs one: from its death until the engine
            answered again.
        line_after_ready_s: From then to the next finished line.
    """

    number: int
    kind: Kind
    at_s: float
    num_killed: int
    in_flight: InFlight
    next_line_s: float = 0.0
    released_s: float | None = None
    ready_s: float | None = None
    line_after_ready_s: float | None = None

    def told(self) -> str:
        """One line for people."""
        text = (
            f"{self.number:4d}  {self.kind.value:28} in flight {self.in_flight.num:4d}"
            f"  next line {self.next_line_s:6.2f} s"
        )
        if self.ready_s is not None:
            released = "" if self.released_s is None else f"released {self.released_s:.2f} s, "
            text += (
                f"  ({released}ready {self.ready_s:.2f} s, then {self.line_after_ready_s:.2f} s)"
            )
        return text


class Reaper:
    """Deals out deaths on one installation."""

    def __init__(self, installation: Installation, observer: Observer, rng: random.Random) -> None:
        self._installation = installation
        self._observer = observer
        self._rng = rng
        self._num = 0

    async def kill(self, kind: Kind) -> Death:
        """Wait for rows in flight, kill, wait for the next finished line."""
        await asyncio.sleep(self._rng.uniform(0.0, LONGEST_PAUSE_S))
        before = await self._observer.progress()
        pids, in_flight = await self._aim(kind)
        self._num += 1
        death = Death(self._num, kind, wall_s(), len(pids), in_flight)
        match kind:
            case Kind.MACHINE:
                await asyncio.to_thread(self._installation.kill_machine)
                await asyncio.sleep(self._rng.uniform(0.0, LONGEST_PAUSE_S))
                await asyncio.to_thread(self._installation.start, START_LIMIT_S)
                if self._installation.fake is None:
                    death.ready_s = wall_s() - death.at_s
            case Kind.ENGINE:
                self._installation.kill(pids)
                await self._outage(death)
            case Kind.CLOCK_ON | Kind.CLOCK_BACK:
                await jump(self._observer.ask, JUMPS_S[kind])
            case Kind.BROKER_WIPED:
                self._installation.kill(pids)
                self._installation.wipe_broker()
            case _:
                self._installation.kill(pids)
        since_s = death.at_s + (death.ready_s or 0.0)
        finished_at = await self._next_line(before, since_s)
        death.next_line_s = finished_at - death.at_s
        if death.ready_s is not None:
            death.line_after_ready_s = finished_at - since_s
        return death

    async def _aim(self, kind: Kind) -> tuple[list[int], InFlight]:
        """The victims, at a moment at which a living dispatcher has rows at the engine."""
        async with asyncio.timeout(FLIGHT_LIMIT_S):
            while True:
                pids = find(kind, self._installation, self._rng)
                if pids:
                    in_flight = await self._observer.in_flight()
                    if in_flight.num > 0:
                        return pids, in_flight
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _outage(self, death: Death) -> None:
        """The engine is gone: until its rows are released, and until it is back."""
        fake = self._installation.fake
        down_until_s = death.at_s + self._rng.uniform(*OUTAGE_S)
        if fake is not None:
            fake.reap()
        async with asyncio.timeout(RECOVERY_LIMIT_S):
            while death.released_s is None or death.ready_s is None:
                now_s = wall_s()
                if death.released_s is None and await self._observer.num_leased() == 0:
                    death.released_s = now_s - death.at_s
                if fake is not None and fake.pid is None and now_s > down_until_s:
                    await asyncio.to_thread(fake.start)
                if death.ready_s is None and await self._observer.engine_answers():
                    death.ready_s = wall_s() - death.at_s
                    # Held again as soon as it answers: a release not seen is as late as this.
                    death.released_s = death.released_s or death.ready_s
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _next_line(self, before: dict[str, int], since_s: float) -> float:
        async with asyncio.timeout(RECOVERY_LIMIT_S):
            while True:
                found = await self._observer.next_line_at(before, since_s)
                if found is not None:
                    return found
                await asyncio.sleep(POLL_INTERVAL_S)
