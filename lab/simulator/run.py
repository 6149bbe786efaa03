"""Runs a policy on the engine in memory."""

from __future__ import annotations

from engine_adapter.scheduling.driver import Driver
from lab.simulator.engine import MemoryEngine


class Stuck(RuntimeError):
    """Live requests exist and the policy lets none of them run."""


def run(engine: MemoryEngine, driver: Driver, *, until_s: float, max_idle_steps: int = 16) -> int:
    """Step until the clock passes ``until_s`` or nothing is left to do.

    Args:
        engine: The engine, with its requests submitted.
        driver: The policy's driver.
        until_s: Instant at which no further step begins.
        max_idle_steps: Steps in a row that may compute nothing although requests are live.

    Returns:
        Number of steps that computed something.

    Raises:
        Stuck: If the policy starves every live request.
    """
    steps = idle = 0
    while engine.now_s < until_s:
        checked = driver.begin(engine.snapshot())
        launched = engine.apply(checked.plan)
        for outcome in engine.outcomes():
            driver.end(outcome.step_id, outcome)
        if launched is not None:
            steps, idle = steps + 1, 0
            continue
        if checked.plan.restores:
            idle = 0
            continue
        idle += 1
        if not engine.roster.requests:
            if not engine.skip_to_next_arrival():
                break
            idle = 0
        elif idle > max_idle_steps and not engine.skip_to_next_arrival():
            raise Stuck(f"{len(engine.roster.requests)} live requests, none of them runs")
    for outcome in engine.process_results(0):
        driver.end(outcome.step_id, outcome)
    return steps
