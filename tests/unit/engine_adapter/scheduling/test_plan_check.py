"""Every rule, broken once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import PlanRejected, check_plan
from engine_adapter.scheduling.plan import (
    Checkpoint,
    Chunk,
    Restore,
    Retract,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.request import Phase, SharedPages
from engine_adapter.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL, FETCH = Phase.DECODE, Phase.PREFILL, Phase.RESTORING


@pytest.fixture
def full(world: World) -> World:
    """Requests in every phase: d* decode, p* half filled, w* wait, r retracted (4 host pages)."""
    world.online("d-on", phase=DECODE)
    world.offline("d1", phase=DECODE)
    world.offline("d2", phase=DECODE, in_flight=True)
    world.offline("d-odd", phase=DECODE, can_mix=False)
    world.offline("p1", phase=PREFILL, computed=32)
    world.online("w-on")
    world.offline("w1")
    world.offline("r", phase=Phase.RETRACTED, host_pages=4, host_tokens=60)
    world.offline("f", phase=FETCH, computed=32, restored_pages=2, host_pages=4, host_tokens=64)
    return world


def test_a_good_plan_passes(full: World) -> None:
    check_plan(
        StepPlan(
            1,
            decode=("d-on", "d1"),
            prefill=(Chunk("p1", 68), Chunk("w-on", 100)),
            parks=("d-odd",),
            checkpoints=(Checkpoint("d1", 0, 6),),
            restores=(Restore("r", 0, 4), Restore("f", 2, 2)),
            safepoints=Safepoints(SafepointMode.DROP, 0.01),
            predicted_s=0.1,
        ),
        full.snapshot(),
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step_id": 9}, "it answers the snapshot of step 1"),
        ({"decode": ("nobody",)}, "decode names unknown request nobody"),
        ({"decode": ("d1", "d1")}, "request d1 appears twice"),
        ({"decode": ("d1",), "retracts": ("d1",)}, "request d1 appears twice"),
        ({"decode": ("p1",)}, "decode of p1, which is in phase PREFILL"),
        ({"prefill": (Chunk("d1", 1),)}, "prefill of d1, which is in phase DECODE"),
        ({"prefill": (Chunk("f", 1),)}, "prefill of f, which is in phase RESTORING"),
        ({"prefill": (Chunk("p1", 69),)}, "chunk of 69 tokens for p1, which has 68 left"),
        ({"prefill": (Chunk("p1", 0),)}, "chunk of 0 tokens"),
        ({"prefill": (Chunk("p1", 10),)}, "chunk of p1 ends at 42, inside a page"),
        ({"cuts": (Retract("w1", 16),)}, "cut of w1, which has no end of its own to give"),
        ({"cuts": (Retract("d2", 16),)}, "cut of d2, whose last step or copy is under way"),
        ({"cuts": (Retract("d1", 20),)}, "cut of d1 to 20 tokens"),
        ({"cuts": (Retract("d1", 112),)}, "cut of d1 to 112 tokens"),
        ({"retracts": ("w1",)}, "retract of w1, which holds no slot"),
        ({"retracts": ("d2",)}, "retract of d2, whose last step is not processed"),
        ({"restores": (Restore("w1", 0, 1),)}, "restore of w1, which is in phase WAITING"),
        ({"restores": (Restore("f", 0, 1),)}, "restore of f from page 0, expected 2"),
        ({"restores": (Restore("r", 0, 5),)}, "restore of r to page 5, which is not on"),
        ({"parks": ("w1",)}, "park of w1, which holds no slot"),
        ({"decode": ("d1",), "parks": ("d1",)}, r"request d1 appears twice \(park\)"),
        ({"checkpoints": (Checkpoint("w1", 0, 1),)}, "checkpoint of w1, which holds no pages"),
        ({"checkpoints": (Checkpoint("d1", 1, 1),)}, "from page 1, expected 0"),
        ({"checkpoints": (Checkpoint("d1", 0, 7),)}, "up to token 112, of which 100"),
        ({"retracts": ("d1",), "checkpoints": (Checkpoint("d1", 0, 1),)}, "holds no pages"),
        ({"decode": ("d-odd",), "prefill": (Chunk("p1", 16),)}, "d-odd cannot share a mixed"),
        ({"decode": ("d1",), "predicted_s": float("nan")}, "predicted time nan"),
        (
            {"decode": ("d-on",), "safepoints": Safepoints(SafepointMode.ABORT, 0.1)},
            "safepoints in a step without offline requests",
        ),
        (
            {"decode": ("d-on", "d1"), "safepoints": Safepoints(SafepointMode.ABORT, 0.1)},
            "an abort would throw online requests away",
        ),
        (
            {"decode": ("d1",), "safepoints": Safepoints(SafepointMode.ABORT, 0.0)},
            "safepoints without an interval",
        ),
    ],
)
def test_a_rule_broken(full: World, changes: dict[str, object], reason: str) -> None:
    plan = replace(StepPlan(1, predicted_s=0.1), **changes)  # type: ignore[arg-type]
    with pytest.raises(PlanRejected, match=reason):
        check_plan(plan, full.snapshot())


def test_pages_are_not_promised_twice(full: World) -> None:
    full.have(free_pages=3, evictable_pages=3)
    # 68 tokens after 32 end in page 7: 5 new ones; a decode at 100 tokens needs none
    check_plan(StepPlan(1, decode=("d1",), prefill=(Chunk("p1", 68),)), full.snapshot())
    with pytest.raises(PlanRejected, match="7 pages promised, 6 available"):
        check_plan(StepPlan(2, prefill=(Chunk("w1", 100),)), full.snapshot())
    # the 7 pages of a retracted request count, unless they are shared
    plan = StepPlan(3, prefill=(Chunk("w1", 100),), retracts=("d1",))
    check_plan(plan, full.snapshot())
    full.roster.requests["d1"].shared = (SharedPages(1, 7, holders=2),)
    with pytest.raises(PlanRejected, match="7 pages promised, 6 available"):
        check_plan(replace(plan, step_id=4), full.snapshot())


def test_slots_are_not_promised_twice(full: World) -> None:
    full.have(total_slots=7, reserved_slots=0)  # 6 in use
    with pytest.raises(PlanRejected, match="2 slots promised, 1 free"):
        check_plan(StepPlan(1, prefill=(Chunk("w1", 100), Chunk("w-on", 100))), full.snapshot())


def test_offline_requests_leave_the_reserved_slots_alone(full: World) -> None:
    full.have(total_slots=9, reserved_slots=4)  # 5 offline requests hold slots already
    with pytest.raises(PlanRejected, match="would hold 6 slots, 5 are open to them"):
        check_plan(StepPlan(1, prefill=(Chunk("w1", 100),)), full.snapshot())
    check_plan(StepPlan(2, prefill=(Chunk("w-on", 100),)), full.snapshot())


def test_the_executor_has_limits(full: World) -> None:
    full.limit(max_chunk_tokens=99)
    with pytest.raises(PlanRejected, match="100 prompt tokens, at most 99 per step"):
        check_plan(StepPlan(1, prefill=(Chunk("w1", 100),)), full.snapshot())
    full.limit(max_batch_size=1)
    with pytest.raises(PlanRejected, match="2 requests in one step"):
        check_plan(StepPlan(2, decode=("d-on", "d1")), full.snapshot())
    full.limit(can_mix=False, max_batch_size=9)
    with pytest.raises(PlanRejected, match="decoding requests and prompt tokens in one step"):
        check_plan(StepPlan(3, decode=("d1",), prefill=(Chunk("p1", 16),)), full.snapshot())


def test_an_end_alone_is_taken_where_the_executor_can(full: World) -> None:
    cut = StepPlan(1, prefill=(Chunk("p1", 68),), cuts=(Retract("d1", 32),))
    full.have(free_pages=1, evictable_pages=0)
    check_plan(cut, full.snapshot())  # five pages of d1 for five of p1
    full.have(free_pages=0, evictable_pages=0)
    check_plan(replace(cut, step_id=2), full.snapshot())
    with pytest.raises(PlanRejected, match="1 pages promised, 0 available"):
        check_plan(replace(cut, step_id=3, cuts=(Retract("d1", 48),)), full.snapshot())
    full.have(host_free_pages=6)
    with pytest.raises(PlanRejected, match="7 pages for a host pool with 6"):
        check_plan(replace(cut, step_id=4), full.snapshot())
    full.limit(cuts=False)
    with pytest.raises(PlanRejected, match="takes all of a request's pages or none"):
        check_plan(replace(cut, step_id=5), full.snapshot())


@pytest.mark.parametrize(
    ("limit", "plan", "reason"),
    [
        ("prefill_safepoints", StepPlan(1, prefill=(Chunk("w1", 100),)), "abort prompt tokens"),
        ("decode_safepoints", StepPlan(1, decode=("d1",)), "abort decodes"),
    ],
)
def test_only_what_can_be_aborted_is_armed(
    full: World, limit: str, plan: StepPlan, reason: str
) -> None:
    armed = replace(plan, safepoints=Safepoints(SafepointMode.ABORT, 0.1))
    check_plan(armed, full.snapshot())
    full.limit(**{limit: False})
    with pytest.raises(PlanRejected, match=reason):
        check_plan(replace(armed, step_id=2), full.snapshot())


def test_requests_are_dropped_only_where_the_executor_can(full: World) -> None:
    full.limit(request_drop=False)
    plan = StepPlan(
        1,
        decode=("d-on",),
        prefill=(Chunk("p1", 68),),
        safepoints=Safepoints(SafepointMode.DROP, 0.1),
    )
    with pytest.raises(PlanRejected, match="cannot drop requests"):
        check_plan(plan, full.snapshot())


def test_copies_stay_within_the_host_pool_and_the_interconnect(full: World) -> None:
    full.have(host_free_pages=5)
    with pytest.raises(PlanRejected, match="6 pages for a host pool with 5"):
        check_plan(StepPlan(1, checkpoints=(Checkpoint("d1", 0, 6),)), full.snapshot())
    full.have(host_free_pages=9, copy_pages_per_step=7)
    with pytest.raises(PlanRejected, match="8 page copies in a step that hides 7"):
        check_plan(
            StepPlan(2, checkpoints=(Checkpoint("d1", 0, 6),), restores=(Restore("f", 2, 2),)),
            full.snapshot(),
        )


def test_whole_runs_of_ready_requests_are_checked_like_any_other_requests(
    make_world: Callable[..., World],
) -> None:
    """Plans that take all ready requests, or the first ones, against the check one by one."""
    generator = random.Random(7)
    outcomes: set[bool] = set()
    for _ in range(400):
        world = make_world()
        world.have(page_tokens=generator.choice([1, 16]), free_pages=generator.randrange(8))
        for i in range(generator.randrange(8)):
            add = generator.choice([world.online, world.offline])
            phase = generator.choice([DECODE, DECODE, DECODE, PREFILL])
            add(f"r{i}", phase=phase, computed=generator.randrange(1, 40), can_mix=i != 5)
        world.offline("w", prompt=3)
        snapshot = world.snapshot()
        ready = snapshot.online_ready.rids + snapshot.offline_ready.rids
        decode = list(ready[: generator.randrange(len(ready) + 1)])
        if decode and generator.random() < 0.3:
            decode[generator.randrange(len(decode))] = generator.choice(["r0", "r1", "w", "nobody"])
        request_by_request = [*decode[1:], *decode[:1]]  # no run from the front unless it is short
        names = generator.sample(["r0", "r1", "w"], k=generator.randrange(2))
        plan = StepPlan(
            1,
            prefill=(Chunk("w", 3),) if generator.random() < 0.5 else (),
            retracts=tuple(name for name in names if name in snapshot.requests),
            predicted_s=0.1,
        )
        found = [
            refused(replace(plan, decode=tuple(order)), snapshot)
            for order in (decode, request_by_request)
        ]
        assert found[0] == found[1]
        outcomes.add(found[0])
    assert outcomes == {True, False}


def refused(plan: StepPlan, snapshot: Snapshot) -> bool:
    try:
        check_plan(plan, snapshot)
    except PlanRejected:
        return True
    return False
