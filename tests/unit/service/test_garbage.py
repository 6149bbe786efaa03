"""A process that streams collects when nobody waits, and once in a long while whoever waits."""

from __future__ import annotations

import gc
import weakref

from service.garbage import PATIENCE_S, QuietCollector


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


async def test_a_circle_waits_for_a_quiet_moment() -> None:
    gc.disable()
    quiet, now_s = False, 0.0
    collector = QuietCollector(lambda: quiet, lambda: now_s)
    left = weakref.ref(Circle())

    await collector.poll()
    assert left() is not None
    quiet = True
    await collector.poll()
    assert left() is None
    gc.enable()


async def test_it_waits_no_longer_than_its_patience() -> None:
    gc.disable()
    now_s = 0.0
    collector = QuietCollector(lambda: False, lambda: now_s)
    left = weakref.ref(Circle())
    for now_s, is_left in ((PATIENCE_S - 1, True), (PATIENCE_S, False)):  # noqa: B007
        await collector.poll()
        assert (left() is not None) == is_left
    gc.enable()
