from __future__ import annotations

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.snapshot import EngineLimits
from engine_adapter.scheduling.targets import Slo
from lab.policies.random_valid import RandomValid
from lab.simulator.engine import MemoryEngine
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes


def test_it_does_everything_an_engine_must_survive(model: PolynomialModel) -> None:
    limits = EngineLimits(
        max_chunk_tokens=128, prefill_safepoints=True, decode_safepoints=True, request_drop=True
    )
    policy = RandomValid(model)
    driver = Driver(policy)
    engine = MemoryEngine(
        EngineShape(
            total_pages=90, host_total_pages=40, total_slots=8, delay_steps=1, limits=limits
        ),
        Slo(0.1, 0.05),
        ProfiledTimes(model),
        policy.at_arrival,
    )
    for i in range(40):
        cls = RequestClass.ONLINE if i % 3 == 0 else RequestClass.OFFLINE
        engine.submit(Request(f"r{i}", cls, 200, 200, 30, arrival_at_s=i * 0.3))
    seen: set[str] = set()
    partial_prompts = 0
    for _ in range(4000):
        plan = driver.begin(engine.snapshot()).plan
        for kind in ("decode", "prefill", "parks", "retracts", "checkpoints", "restores"):
            if getattr(plan, kind):
                seen.add(kind)
        seen.add(str(plan.kind))
        seen.add(str(plan.safepoints.mode))
        partial_prompts = max(
            partial_prompts,
            sum(
                1 for request in engine.roster.requests.values() if request.phase.name == "PREFILL"
            ),
        )
        engine.apply(plan)
        for outcome in engine.outcomes():
            driver.end(outcome.step_id, outcome)
        if not engine.roster.requests and not engine.skip_to_next_arrival():
            break
    assert len(engine.finished) == 40
    assert seen >= {
        "decode", "prefill", "parks", "retracts", "checkpoints", "restores",
        "mixed", "abort", "drop", "none",
    }  # fmt: skip
    assert partial_prompts >= 2
    assert engine.num_stops > 0
    assert engine.restored_tokens > 0
    assert engine.recomputed_tokens > 0
