"""Online requests that arrive beside offline work: slots, prefixes, stops, and an idle engine."""

from __future__ import annotations

import time
from typing import Any

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import Decision
from engine_adapter.scheduling.policies.registry import create_policy
from tests.engine.scenario_steps import (
    NEW,
    counters,
    flush,
    gained,
    run_and_compare,
    undisturbed,
)
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy

GUESS = Coefficients(1e-4, 0.0, 1e-7, 0.0, 1e-4, 1e-3)


def conserve(name: str = "conserve_v2") -> Any:
    return create_policy(name, PolynomialModel(GUESS, GUESS, GUESS))


def slots_for_online(rig: Rig) -> dict[str, Any]:
    """Offline requests want every slot; an online request starts in the very next step."""
    flush(rig)
    rig.use(conserve())
    started: dict[str, int] = {}

    def script(rig: Rig) -> None:
        s = rig.scheduler
        if rig.step == 12:
            assert s.execution.requests.roster.num_waiting > 0, "offline rows left the queue empty"
            started["held"] = len(s.execution.requests.holding)
            rig.submit("on", prompt(60, 30), 4, priority=0)
        if rig.step == 13:
            started["online"] = int(s.execution.requests["on"].request.holds_slot)

    for i in range(20):
        rig.submit(f"o{i}", prompt(70 + i, 20), 30)
    rig.run(script)
    share = rig.scheduler.execution.snapshots.resources().reserved_slots
    assert started == {"held": 16 - share, "online": 1}, (started, share)
    flush(rig)
    return started


def every_slot(rig: Rig) -> dict[str, Any]:
    """With no share reserved all slots are offline requests'; one gives its slot up at once."""
    jobs = {f"o{i}": (prompt(200 + i, 20), -10) for i in range(16)}
    expected = undisturbed(rig, jobs) | undisturbed(rig, {"on": (prompt(220, 30), 0)})
    before = counters(rig)
    snapshots = rig.scheduler.execution.snapshots
    reserved, snapshots._reserved_slots = snapshots._reserved_slots, 0
    rig.use(conserve())
    seen: dict[str, int] = {}

    def script(rig: Rig) -> None:
        requests = rig.scheduler.execution.requests
        if len(requests.holding) == 16 and "came" not in seen:
            seen["came"] = rig.step
            rig.submit("on", prompt(220, 30), NEW, priority=0)
        elif "on" in requests.holding and "began" not in seen:
            seen["began"] = rig.step

    run_and_compare(rig, jobs, expected, script)
    snapshots._reserved_slots = reserved
    events = gained(before, counters(rig), "retracts")
    assert events["retracts"] > 0, (events, seen)
    # The step that is composed when it comes takes its slot; the overlap loop has one under way,
    # whose requests cannot be retracted before its result is there.
    assert seen["began"] - seen["came"] <= 1 + rig.scheduler.enable_overlap, seen
    return {**seen, **events}


def online_prefixes_stay(rig: Rig) -> dict[str, Any]:
    """A flood of offline prompts evicts its own prefixes, not those of online requests."""
    flush(rig)
    rig.use(ScriptedPolicy())
    rig.submit("first", prompt(80, 300), 2, priority=0)
    rig.run()
    for i in range(24):
        rig.submit(f"flood{i}", prompt(100 + i, 480), 2)
    rig.run()
    free = rig.scheduler.token_to_kv_pool_allocator.available_size()
    assert free < 1500, "the flood did not fill the pool, nothing had to be evicted"
    rig.submit("again", prompt(80, 300), 2, priority=0)
    rig.run()
    hit = rig.reqs["again"].cached_tokens
    assert hit >= 299, hit
    flush(rig)
    return {"cached_tokens": hit}


def monitor_stops(rig: Rig) -> dict[str, Any]:
    """An online request arrives through the socket while an offline pass runs, and stops it.

    Its target runs from the moment it came, not from that at which the scheduler read it.
    """
    jobs = {"off": (prompt(90, 400), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    policy = rig.use(ScriptedPolicy())
    policy.decide = lambda arrival, step: Decision.STOP_AT_NEXT_SAFEPOINT
    layers = rig.scheduler.tp_worker.model_runner.model.model.layers
    sent: list[int] = []
    seen_at_s: list[float] = []
    arrived_at_s: list[float] = []

    def note_arrival(rig: Rig) -> None:
        if "on" in rig.scheduler.execution.requests and not arrived_at_s:
            arrived_at_s.append(rig.scheduler.execution.requests["on"].request.arrival_at_s)

    def arrive(_module: Any, _args: Any) -> None:
        step = rig.scheduler.execution.unsettled
        if step is not None and not sent and step.tokens(online=False) > 100:
            sent.append(1)
            rig.send(rig.request("on", prompt(91, 25), 6, priority=0))
            deadline = time.monotonic() + 5.0
            while rig.scheduler.monitor.num_stops == before["stops_raised"]:
                assert time.monotonic() < deadline, "the monitor saw nothing"
                time.sleep(0.001)
            seen_at_s.append(time.monotonic())

    handle = layers[2].register_forward_pre_hook(arrive)
    run_and_compare(rig, jobs, expected, note_arrival)
    handle.remove()
    after = counters(rig)
    assert 0.0 < seen_at_s[0] - arrived_at_s[0] < 5.0, "the time in the queue was forgotten"
    assert after["attained"]["ttft"]["num"] == before["attained"].get("ttft", {}).get("num", 0) + 1
    assert after["attained"]["tbt"]["num"] == before["attained"].get("tbt", {}).get("num", 0) + 5
    was, now = (sum(one["isolation"]["ttft"]["beside"][3:]) for one in (before, after))
    assert now == was + 1, "it waited for a step with offline rows"
    stopped = [step for step in after["recent_steps"] if step[-1] == 3]
    assert stopped, after["recent_steps"]
    assert stopped[-1][1:4] == [0, 0, 0], "nothing of a stopped step is kept"
    assert sum(step[3] for step in after["recent_steps"]) >= 400, "tokens of offline rows"
    events = gained(before, after, "arrivals_seen", "stops_raised", "aborts")
    assert events == {"arrivals_seen": 1, "stops_raised": 1, "aborts": 1}, events
    assert after["stop_layers"][-1] == 3, after["stop_layers"]
    return events


def idles(rig: Rig) -> dict[str, Any]:
    """An idle scheduler asks to sleep, and a message wakes the sleeper."""
    before = rig.idle_sleeps
    rig.run(at_least=5)
    assert rig.idle_sleeps > before
    s = rig.scheduler
    s.wait_for_work(0.01)  # a wake-up of an earlier message may still be there
    started = time.monotonic()
    s.wait_for_work(0.3)
    assert time.monotonic() - started > 0.25, "nothing to do, yet it did not sleep"
    rig.send(rig.request("wake", prompt(92, 10), 1))
    started = time.monotonic()
    s.wait_for_work(5.0)
    assert time.monotonic() - started < 2.0, "the message did not wake the scheduler"
    rig.use(ScriptedPolicy())
    s.process_input_requests(s.request_receiver.recv_requests())
    rig.run()
    return {"sleeps": rig.idle_sleeps}


ARRIVALS = [slots_for_online, every_slot, online_prefixes_stay, monitor_stops, idles]
