from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.datastructures import State

from gateway.dashboard.fragments import Fragments, SharedReadings
from gateway.dashboard.resources import Resources
from gateway.dashboard.session import SessionSigner
from tests.fakes.seams import ManualClock


@dataclass(frozen=True)
class CountedView:
    """A view that counts how often it is read."""

    name: str
    reads: list[str] = field(default_factory=list, compare=False)
    fresh_s: float = 1.0

    async def read(self, resources: Resources) -> Fragments:
        self.reads.append(self.name)
        await asyncio.sleep(0)
        return Fragments(whole={self.name: str(len(self.reads))})


def make_readings() -> tuple[SharedReadings, ManualClock]:
    clock = ManualClock()
    return SharedReadings(Resources(State(), SessionSigner("s"), clock=clock)), clock


async def test_however_many_look_a_view_is_read_once() -> None:
    readings, _ = make_readings()
    view = CountedView("a")
    found = await asyncio.gather(*(readings.read(view) for _ in range(20)))
    assert view.reads == ["a"]
    assert len({id(one) for one in found}) == 1


async def test_a_reading_that_is_not_fresh_any_more_is_made_anew() -> None:
    readings, clock = make_readings()
    view = CountedView("a")
    await readings.read(view)
    clock.advance(0.9)
    await readings.read(view)
    assert len(view.reads) == 1
    clock.advance(0.2)
    await readings.read(view)
    assert len(view.reads) == 2
    await readings.read(view, anew=True)
    assert len(view.reads) == 3


async def test_what_nobody_looks_at_is_forgotten() -> None:
    readings, clock = make_readings()
    await readings.read(CountedView("a"))
    clock.advance(31)
    await readings.read(CountedView("b"))
    assert readings.remembered() == [CountedView("b")]
