from __future__ import annotations

import json

from engine_adapter.scheduling.plan import (
    Checkpoint,
    Chunk,
    Restore,
    Retract,
    SafepointMode,
    Safepoints,
    StepKind,
    StepPlan,
)


def test_a_plan_travels_as_json() -> None:
    plan = StepPlan(
        step_id=7,
        decode=("a", "b"),
        prefill=(Chunk("c", 64),),
        parks=("d",),
        retracts=("e",),
        cuts=(Retract("g", 32),),
        checkpoints=(Checkpoint("a", 2, 3),),
        restores=(Restore("f", 0, 4),),
        safepoints=Safepoints(SafepointMode.DROP, 0.02),
        predicted_s=0.1,
        budget_s=float("inf"),
    )
    assert StepPlan.from_plain(json.loads(json.dumps(plan.to_plain()))) == plan


def test_the_kind_follows_from_the_requests() -> None:
    chunk = (Chunk("c", 3),)
    assert StepPlan(1).kind is StepKind.IDLE
    assert StepPlan(1, decode=("a",)).kind is StepKind.DECODE
    assert StepPlan(1, prefill=chunk).kind is StepKind.PREFILL
    assert StepPlan(1, decode=("a",), prefill=chunk).kind is StepKind.MIXED
    assert StepPlan(1, decode=("a",), prefill=chunk).num_tokens == 4
