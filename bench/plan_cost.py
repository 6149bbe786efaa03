"""CPU time of a scheduling decision at 256 running and 1,000 waiting requests.

    python -m bench.plan_cost
    python -m bench.plan_cost --sizes    # every policy with 256 and with 1,024 requests running
    python -m bench.plan_cost --policies conserve_v2

First snapshot, plan and check for every policy and four kinds of step, without an engine; then
the whole decision with actuation, in the real scheduler (`bench/actuate_cost.py`, in the engine's
environment). Microseconds of thread CPU time per step: a neighbour on the same core makes them
longer, so the minimum is printed beside median and 95th percentile. Targets are 0.5 ms for the
median of our own part of the whole decision (SGLang's `prepare_for_decode` is paid without us
too), and 1 ms for the default policy's plan over the worst of the queues.

Quoted in docs/benchmark-coserve-details.md and docs/which-policy.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, NamedTuple

from bench.paths import ENGINE_PYTHON, ROOT
from bench.report import at_most, option_parser, report
from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import DEFAULT_POLICY
from engine_adapter.scheduling.request import Phase, Request, RequestClass, pages_for
from engine_adapter.scheduling.roster import Roster
from engine_adapter.scheduling.snapshot import EngineLimits, Resources
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import POLICIES

NUM_RUNNING, NUM_WAITING, STEPS = 256, 1000, 200
SIZES, SIZE_STEPS = (256, 1024), 40
TARGET_US, WORST_TARGET_US = 500.0, 1000.0
K = Coefficients(4.6e-4, 0.0, 1.2e-5, 1.3e-7, 0.0, 0.07)
MODEL = PolynomialModel(Coefficients(4.6e-4, 0.0, 1.2e-5, 0.0, 0.0, 0.07), K, K)
LIMITS = EngineLimits(
    max_chunk_tokens=512, prefill_safepoints=True, decode_safepoints=True, request_drop=True
)


def roster(online_every: int, prefix_tokens: int, num_running: int = NUM_RUNNING) -> Roster:
    """A quarter of the running requests online, or none; 1,000 offline ones of 7 batches wait."""
    made = Roster()
    for i in range(num_running):
        online = online_every and i % online_every == 0
        cls = RequestClass.ONLINE if online else RequestClass.OFFLINE
        request = Request(f"running-{i:032d}", cls, 1000, 1000, batch_id=f"b{i % 3}")
        made.add(request)
        made.start(request.rid, Phase.DECODE)
        request.computed_tokens = 1000 + i
        request.device_pages = pages_for(request.computed_tokens, 16)
    for i in range(NUM_WAITING):
        made.add(
            Request(
                f"waiting-{i:032d}", RequestClass.OFFLINE, 1000, 1000,
                batch_id=f"b{i % 7}", deadline_at_s=float(i % 7), cached_tokens=prefix_tokens,
            )
        )  # fmt: skip
    return made


class Queue(NamedTuple):
    """What a step has room for.

    Attributes:
        tbt_s: Target of gaps: how long a step may take.
        online_every: One running request in so many is online; none: 0.
        free_pages: Of the KV cache.
        prefix_tokens: Of each waiting request that are cached, so that it is passed over.
    """

    tbt_s: float
    online_every: int
    free_pages: int
    prefix_tokens: int = 0


KINDS = {
    "full step": Queue(10.0, 4, 30_000),
    "tight step": Queue(1.05, 4, 30_000),
    "tight, 1,000 passed over": Queue(1.05, 4, 30_000, 900),
    "offline only, pages short": Queue(1.0, 0, 500),
}


def measure(
    name: str, queue: Queue, num_running: int = NUM_RUNNING, steps: int = STEPS
) -> list[float]:
    """CPU seconds of each step; before each, the waiting queue changes by one request."""
    requests = roster(queue.online_every, queue.prefix_tokens, num_running)
    driver = Driver(create_policy(name, MODEL))
    resources = Resources(
        page_tokens=16, host_page_tokens=16, total_pages=max(40_000, 140 * num_running),
        free_pages=queue.free_pages, host_total_pages=100_000, host_free_pages=50_000,
        total_slots=num_running + 144, free_slots=144, reserved_slots=100, copy_pages_per_step=64,
    )  # fmt: skip
    taken = []
    for step in range(steps):
        rid = f"waiting-{step:032d}"
        request = requests.finish(rid)
        assert request is not None
        requests.add(request)
        begun = time.thread_time()
        driver.begin(
            requests.snapshot(step, 0.0, Slo(2.0 * queue.tbt_s, queue.tbt_s), resources, LIMITS)
        )
        taken.append(time.thread_time() - begun)
    return sorted(taken)


def in_the_engine() -> dict[str, Any]:
    """What `bench/actuate_cost.py` prints; empty without an engine environment."""
    if not ENGINE_PYTHON.exists():
        print("no .venv-engine: the engine's part is left out (make setup-engine)")
        return {}
    done = subprocess.run(
        [str(ENGINE_PYTHON), str(ROOT / "bench" / "actuate_cost.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("COST ")]
    if not lines:
        raise RuntimeError(f"the engine's part ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("COST "))
    return found


def by_size() -> int:
    """Every policy at two numbers of running requests, beside 1,000 that wait."""
    measured: dict[str, Any] = {}
    print(f"{'policy':16}" + "".join(f"{f'{num:,} running, p50 us':>24}" for num in SIZES))
    for name in POLICIES:
        medians = []
        for num_running in SIZES:
            taken = measure(name, KINDS["full step"], num_running, SIZE_STEPS)
            medians.append(round(taken[SIZE_STEPS // 2] * 1e6))
            measured[f"{name}: {num_running} running"] = {
                "min": round(taken[0] * 1e6),
                "p50": medians[-1],
            }
        print(f"{name:16}" + "".join(f"{median:24}" for median in medians), flush=True)
    return report("plan_cost_sizes", measured)


def main() -> int:
    """Print the tables, keep them, and fail when the whole decision misses its target."""
    parser = option_parser(__doc__)
    parser.add_argument("--sizes", action="store_true", help="256 and 1,024 running")
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args()
    if args.sizes:
        return by_size()
    chosen = args.policies.split(",")
    measured: dict[str, Any] = {}
    print(f"{'policy':16}{'kind':28}{'min us':>8}{'p50 us':>8}{'p95 us':>8}")
    for name in chosen:
        for kind, queue in KINDS.items():
            taken = measure(name, queue)
            request = {
                "min": round(taken[0] * 1e6),
                "p50": round(taken[STEPS // 2] * 1e6),
                "p95": round(taken[int(STEPS * 0.95)] * 1e6),
            }
            print(f"{name:16}{kind:28}{request['min']:8}{request['p50']:8}{request['p95']:8}")
            measured[f"{name}: {kind}, snapshot + plan + check"] = request
    engine = in_the_engine()
    measured["engine, conserve_v2, full decode step"] = engine
    targets = {}
    if worst := [
        request["p50"] for name, request in measured.items() if name.startswith(DEFAULT_POLICY)
    ]:
        measured["worst_queue_p50_us"] = max(worst)
        targets["worst_queue_p50_us"] = at_most(WORST_TARGET_US)
    if engine:
        measured["own_decision_p50_us"] = engine["own_us"]["p50"]
        targets["own_decision_p50_us"] = at_most(TARGET_US)
    return report("plan_cost", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
