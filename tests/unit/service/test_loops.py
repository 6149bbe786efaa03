"""One loop that fails ends no other; what is written at the end is never cut."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from service.loops import DOWN_AFTER, MAX_PAUSE_S, Loops

LIMIT_S = 20.0


class Turns:
    """Counts turns; fails while told to."""

    def __init__(self, failing: int = 0, error: BaseException | None = None) -> None:
        self.num = 0
        self.failing = failing
        self.error = error or KeyError("not expected")

    async def turn(self) -> None:
        self.num += 1
        if self.num <= self.failing:
            raise self.error

    async def until(self, num: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.num < num:
                await asyncio.sleep(0.001)


def loops(counted: Counter[str] | None = None) -> Loops:
    counted = counted if counted is not None else Counter()
    return Loops(lambda loop, num: counted.update({loop: num}), first_pause_s=0.001)


@pytest.mark.parametrize("kind", ["forever", "until"])
@pytest.mark.parametrize("error", [KeyError("a"), ExceptionGroup("b", [ValueError()])])
async def test_one_that_fails_once_goes_on_and_is_told_whole(
    kind: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    counted: Counter[str] = Counter()
    bad, good = Turns(1, error), Turns()
    async with loops(counted) as all_:
        getattr(all_, kind)("bad", bad.turn, every_s=0.001)
        getattr(all_, kind)("good", good.turn, every_s=0.001)
        await bad.until(3)
        await good.until(3)
        assert all_.down == []
    assert counted == {"bad": 1, "good": 0}
    (record,) = (one for one in caplog.records if one.levelno == logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "bad" in record.getMessage()


async def test_one_that_always_fails_is_down_alone_until_it_succeeds() -> None:
    bad, good = Turns(1 << 30), Turns()
    async with loops() as all_:
        all_.forever("bad", bad.turn)
        all_.forever("good", good.turn, every_s=0.001)
        await bad.until(DOWN_AFTER - 1)
        assert all_.down == []
        await bad.until(DOWN_AFTER + 1)
        await good.until(5)
        assert all_.down == ["bad"]
        bad.failing = 0
        await bad.until(bad.num + 3)
        assert all_.down == []


async def test_failures_with_a_good_turn_between_are_not_down() -> None:
    turns = Turns()

    async def every_second() -> None:
        await turns.turn()
        if turns.num % 2:
            raise KeyError

    async with loops() as all_:
        all_.forever("odd", every_second)
        await turns.until(6 * DOWN_AFTER)
        assert all_.down == []


async def test_what_is_not_vital_takes_nobody_out() -> None:
    bad = Turns(1 << 30)
    async with loops() as all_:
        watcher = all_.forever("engine", bad.turn, vital=False)
        await bad.until(DOWN_AFTER + 2)
        assert all_.down == []
        watcher.cancel()
        await asyncio.wait({watcher})
        num = bad.num
        await asyncio.sleep(0.02)
        assert bad.num == num


async def test_a_cancellation_from_within_is_a_failure_as_others() -> None:
    bad = Turns(1, asyncio.CancelledError())
    async with loops() as all_:
        all_.forever("bad", bad.turn)
        await bad.until(3)


async def test_a_turn_that_writes_is_not_cut_and_there_is_a_last_one() -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), 0

    async def write() -> None:
        nonlocal ended
        begun.set()
        await may_end.wait()
        ended += 1

    endless = asyncio.Event()
    async with loops() as all_:
        all_.until("writes", write, every_s=0.0)
        all_.forever("waits", endless.wait)
        await begun.wait()
        asyncio.get_running_loop().call_later(0.02, may_end.set)
    assert ended == 2, "the turn that was under way, and the last one"


async def test_the_last_turn_is_made_where_the_block_fails_and_fails_alone() -> None:
    bad, good = Turns(1 << 30), Turns()

    async def block() -> None:
        async with loops() as all_:
            all_.until("bad", bad.turn, every_s=60)
            all_.until("good", good.turn, every_s=60)
            await asyncio.sleep(0)
            raise RuntimeError("the block")

    with pytest.raises(RuntimeError, match="the block"):
        await block()
    assert (bad.num, good.num) == (1, 1)


async def test_one_that_waits_for_what_is_due_is_tried_again_without() -> None:
    due, bad = asyncio.Event(), Turns(DOWN_AFTER)

    async def flush() -> None:
        due.clear()
        await bad.turn()

    async with loops() as all_:
        all_.until("limits", flush, every_s=None, due=due)
        await asyncio.sleep(0.01)
        assert bad.num == 0
        due.set()
        await bad.until(DOWN_AFTER + 1)
        assert all_.down == []
        num = bad.num
        await asyncio.sleep(0.01)
        assert bad.num == num, "nothing is due"
    assert bad.num == num + 1


async def test_pauses_grow_to_a_bound() -> None:
    pauses = [Loops()._pause_s(num) for num in range(1, 60)]
    assert all(one <= MAX_PAUSE_S for one in pauses)
    assert pauses[0] < pauses[3] < pauses[8]
    assert len(set(pauses[20:])) > 1, "not all at once"


async def test_a_turn_that_does_not_end_is_down_until_it_does() -> None:
    may_end, others = asyncio.Event(), Turns()
    async with Loops(stuck_s=0.05) as all_:
        all_.forever("stuck", may_end.wait, every_s=60)
        all_.forever("watcher", asyncio.Event().wait, vital=False)
        all_.forever("others", others.turn, every_s=0.001)
        all_.until("not due", others.turn, every_s=None, due=asyncio.Event())
        assert all_.down == []
        async with asyncio.timeout(LIMIT_S):
            while all_.down != ["stuck"]:
                await asyncio.sleep(0.005)
            may_end.set()
            while all_.down:
                await asyncio.sleep(0.005)
