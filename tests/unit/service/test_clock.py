from __future__ import annotations

from service.clock import SystemClock
from tests.fakes.seams import ManualClock


async def test_a_manual_clock_moves_by_what_is_slept() -> None:
    clock = ManualClock()
    before = clock.now()
    await clock.sleep(2.5)
    assert clock.monotonic() == 2.5
    assert (clock.now() - before).total_seconds() == 2.5


async def test_the_system_clock_goes_forward() -> None:
    clock = SystemClock()
    first = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() > first
    assert clock.now().utcoffset() is not None
