"""CPU time of a whole decision in the real scheduler. Runs in the engine's environment.

``.venv-engine/bin/python bench/actuate_cost.py`` starts SGLang's scheduler with co-serving in this
process (six small random layers; what is measured does not depend on the model), holds 256 rows
in decode steps, 64 of them online, with 1,000 offline requests waiting, and prints one JSON object
with microseconds of thread CPU time per step: snapshot, plan and check, actuation, and how much of
actuation is SGLang's own ``prepare_for_decode``, which a step costs without us too.
``bench.plan_cost`` runs it and keeps the figures. Where 170 steps take longer than 45 seconds it
ends with those it has, 20 full ones at least.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.engine.engine_scripts import ENGINE_ENV

# Targets no plan misses: every step is a full one. The strict checks are not what is measured.
os.environ |= {
    **ENGINE_ENV,
    "COSERVE_TTFT_MS": "200000",
    "COSERVE_TBT_MS": "100000",
    "COSERVE_HOST_KV_TOKENS": "4096",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "0",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0",
    "SGLANG_CHECK_KV_PAGE_INVARIANTS": "0",
}

from sglang.srt.managers.schedule_batch import ScheduleBatch

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from tests.engine.scheduler_rig import Rig, prompt

NUM_ONLINE, NUM_OFFLINE, NUM_WAITING = 64, 192, 1000
FILLED_BY_STEP, STEPS = 30, 170
FEWEST, LIMIT_S = 20, 45.0
"""A slow machine tells what it has of the wanted steps after so long, if that is enough."""
K = Coefficients(
    k_token=4.6e-4,
    k_attention=0.0,
    k_context=1.2e-5,
    k_square=1.3e-7,
    k_request=0.0,
    k_constant=0.07,
)


class Clock:
    """Thread CPU seconds per call, by name."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""
        taken = self.taken.setdefault(name, [])

        def timed(*args: Any, **kwargs: Any) -> Any:
            started_s = time.thread_time()
            found = function(*args, **kwargs)
            taken.append(time.thread_time() - started_s)
            return found

        return timed


def instrument(rig: Rig, clock: Clock) -> list[bool]:
    """Put clocks around the parts of a decision; returns which steps were the wanted ones."""
    s = rig.scheduler
    wanted: list[bool] = []
    s.execution.snapshots.take = clock.around("snapshot_us", s.execution.snapshots.take)
    s.planner.begin = clock.around("plan_and_check_us", s.planner.begin)
    s.execution.compose = clock.around("actuate_us", s.execution.compose)
    kind: Any = ScheduleBatch
    kind.prepare_for_decode = clock.around("of_which_sglang_us", kind.prepare_for_decode)
    whole = clock.around("decision_us", s._plan_step)

    def plan_step() -> Any:
        step = whole()
        full = step is not None and len(step.plan.decode) == NUM_ONLINE + NUM_OFFLINE
        wanted.append(
            full
            and not step.plan.prefill
            and s.execution.requests.roster.num_waiting >= NUM_WAITING
        )
        return step

    s._plan_step = plan_step
    return wanted


def main() -> None:
    """Run the steps and print the figures."""
    rig = Rig(overlap=True, kv_tokens=100_000, slots=NUM_ONLINE + NUM_OFFLINE)
    s = rig.scheduler
    s.planner.use_model(PolynomialModel(K, K, K))
    clock = Clock()
    wanted = instrument(rig, clock)
    ends_s = time.monotonic() + LIMIT_S

    def script(rig: Rig) -> None:
        if rig.step == FILLED_BY_STEP:
            for i in range(NUM_ONLINE):
                rig.submit(f"on-{i:029d}", prompt(i, 24), 300, priority=0)
        late = time.monotonic() > ends_s and sum(wanted) >= FEWEST
        if rig.step == STEPS or late:
            print("COST " + json.dumps(figures(clock, wanted)), flush=True)
            os._exit(0)  # thousands of tokens are still due

    for i in range(NUM_OFFLINE + NUM_WAITING):
        rig.submit(f"off{i:029d}", prompt(1000 + i, 24), 400, priority=-10)
    rig.run(script)


def figures(clock: Clock, wanted: list[bool]) -> dict[str, Any]:
    """Minimum, median and 95th percentile over the full steps."""
    num = sum(wanted)
    found: dict[str, Any] = {"steps": num}
    whole, sglang = (clock.taken[name][-num:] for name in ("decision_us", "of_which_sglang_us"))
    own = [all_s - its_s for all_s, its_s in zip(whole, sglang, strict=True)]
    for name, taken in {**clock.taken, "own_us": own}.items():
        full = sorted(taken[-num:])  # once full, every step is: the last ones of each clock
        found[name] = {
            "min": round(full[0] * 1e6),
            "p50": round(full[num // 2] * 1e6),
            "p95": round(full[int(num * 0.95)] * 1e6),
        }
    return found


if __name__ == "__main__":
    main()
