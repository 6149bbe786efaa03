"""When the dispatcher claims again; what it does with rows is tested on a real database."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from batch.files.memory import MemoryFileStore
from batch.run.dispatch import CLAIM_INTERVAL_S, QUICK_CLAIM_INTERVAL_S, Dispatcher, DispatchLimits
from batch.run.lease import Lease, LeaseTimes
from store.session import Database
from tests.fakes.client import FakeEngineClient
from tests.fakes.seams import ManualClock, MemoryQueue

SIZE = 8


@pytest.mark.parametrize(
    ("num_new", "num_there", "waited_s"),
    [
        (SIZE, 0, QUICK_CLAIM_INTERVAL_S),  # all have ended already
        (SIZE, SIZE // 2, QUICK_CLAIM_INTERVAL_S),
        (SIZE, SIZE // 2 + 1, CLAIM_INTERVAL_S),
        (1, 0, CLAIM_INTERVAL_S),  # there was no more to claim, or no more room
    ],
)
async def test_an_engine_that_is_faster_than_the_turns_is_claimed_for_sooner(
    num_new: int, num_there: int, waited_s: float
) -> None:
    clock = ManualClock()
    database = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")  # nothing is asked of it
    lease = Lease("disp_x", "http://engine", database, clock, LeaseTimes())
    dispatcher = Dispatcher(
        lease, FakeEngineClient(), database, MemoryFileStore(), MemoryQueue(), clock,
        DispatchLimits(), drain=asyncio.Event(),
    )  # fmt: skip
    dispatcher._watch.size = SIZE
    dispatcher._in_flight._attempts = dict.fromkeys(range(num_there), cast("Any", None))
    await dispatcher._wait_a_turn(num_new)
    assert clock.monotonic() == pytest.approx(waited_s)
