"""Steps every scenario takes: run undisturbed, run with a script, compare, count events."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from engine_adapter.sglang.kv import sides_of
from tests.engine.scheduler_rig import Rig
from tests.engine.scripted_policy import ScriptedPolicy, Wishes

NEW = 24


def flush(rig: Rig) -> None:
    """Forget every prefix, so that no run profits from an earlier one."""
    assert rig.scheduler.flush_cache(), "the scheduler is not idle after its requests finished"


def wipe(rig: Rig) -> None:
    """Zeros in every KV slot, as nothing is held: what is found later was written since."""
    pool = rig.scheduler.token_to_kv_pool_allocator.get_kvcache()
    for side in sides_of(pool):
        for layer in side:
            layer.zero_()


def undisturbed(
    rig: Rig, jobs: dict[str, tuple[list[int], int]], wishes: Wishes | None = None
) -> dict[str, list[int]]:
    """Greedy output of every job, all of them run together from the start."""
    flush(rig)
    rig.use(ScriptedPolicy(lambda snapshot: wishes or Wishes()))
    for rid, (ids, priority) in jobs.items():
        rig.submit(rid, ids, NEW, priority=priority)
    rig.run()
    flush(rig)
    return {rid: rig.output(rid) for rid in jobs}


def counters(rig: Rig) -> dict[str, Any]:
    state: dict[str, Any] = rig.scheduler.coserve_state()
    return state


def gained(before: dict[str, Any], after: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: after[name] - before[name] for name in names}


def stopped_layers(before: dict[str, Any], after: dict[str, Any]) -> list[int]:
    layers: list[int] = after["stop_layers"]
    return layers[len(before["stop_layers"]) :]


def run_and_compare(
    rig: Rig, jobs: dict[str, tuple[list[int], int]], expected: dict[str, list[int]], script: Any
) -> None:
    """Run the jobs with a script and compare every output."""
    for rid, (ids, priority) in jobs.items():
        rig.submit(rid, ids, NEW, priority=priority)
    rig.run(script)
    rig.stop_at.clear()
    for rid, want in expected.items():
        got = rig.output(rid)
        assert rig.same(rid, got, want), f"{rid}: {got} instead of {want}"
    flush(rig)


def report(scenarios: Iterable[Callable[[Rig], dict[str, Any]]], rig: Rig) -> None:
    """Run scenarios in order and print what happened; after a failed one none can run."""
    results: dict[str, Any] = {}
    for scenario in scenarios:
        try:
            results[scenario.__name__] = {"error": None, **scenario(rig)}
        except Exception:  # noqa: BLE001 - every scenario is reported
            results[scenario.__name__] = {"error": traceback.format_exc()}
            break
    if rig.near_ties is not None:
        results["near_ties"] = {"error": None, "found": rig.near_ties.found}
    print("RESULTS " + json.dumps(results))
