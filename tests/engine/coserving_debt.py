"""What SGLang assumes about its requests and co-serving changes: aborts, pauses, reports, idling.

``python coserving_debt.py OVERLAP``: scenarios on one real scheduler, printed as one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from coserving_scenarios import counters, flush, gained, run_and_compare, undisturbed  # noqa: E402
from scheduler_rig import Rig, prompt  # noqa: E402
from scripted_policy import ScriptedPolicy, Wishes  # noqa: E402
from sglang.srt.managers.io_struct import (  # noqa: E402
    AbortReq,
    ContinueGenerationReqInput,
    PauseGenerationReqInput,
)

from engine_adapter.core.arrival import Decision  # noqa: E402
from engine_adapter.core.request import Phase  # noqa: E402
from engine_adapter.core.snapshot import Snapshot  # noqa: E402
from engine_adapter.latency.polynomial import Coefficients, PolynomialModel  # noqa: E402
from engine_adapter.policies.registry import create_policy  # noqa: E402
from engine_adapter.sglang_plugin.live_ids import live_ids  # noqa: E402

GUESS = Coefficients(1e-4, 0.0, 1e-7, 0.0, 1e-4, 1e-3)


def conserve(name: str = "conserve_v2") -> Any:
    return create_policy(name, PolynomialModel(GUESS, GUESS, GUESS))


def aborts(rig: Rig) -> dict[str, Any]:
    """A parked decode row, a half-filled prompt and a retracted row are aborted: no pass for them."""
    flush(rig)
    before = counters(rig)
    seen: dict[str, Any] = {}

    def wish(snapshot: Snapshot) -> Wishes:
        rows = snapshot.rows
        parked = rig.step > 8
        retract = {"c"} if rig.step == 12 and "c" in rows and not rows["c"].in_flight else set()
        return Wishes(
            park={"a", "b", "c"} if parked else set(), retract=retract, chunk={"b": 16},
            hold={"c"} if parked else set(), checkpoint=True,
        )

    rig.use(ScriptedPolicy(wish))

    def script(rig: Rig) -> None:
        s = rig.scheduler
        if rig.step == 14:
            seen["phases"] = [s.rows[r].row.phase.name for r in "abc"]
            seen["loads"] = s.load_inquirer.get_loads().num_running_reqs
            seen["live"] = live_ids(s)
            seen["host"] = counters(rig)["host_free_pages"]
            for rid in "abc":
                s.abort_request(AbortReq(rid=rid))

    for rid, seed in (("a", 41), ("b", 42), ("c", 43)):
        rig.submit(rid, prompt(seed, 120 + seed), 60)
    steps_before = counters(rig)["steps"]
    rig.run(script)
    assert seen["phases"] == ["DECODE", "PREFILL", "RETRACTED"], seen
    assert seen["loads"] == 2, seen
    assert sorted(seen["live"]["running"]) == ["a", "b"], seen["live"]
    assert seen["live"]["waiting"] == ["c"], seen["live"]
    after = counters(rig)
    assert after["holding"] == 0 and after["waiting"] == 0, after
    assert seen["host"] < after["host_free_pages"] == after["host_total_pages"], seen
    events = gained(before, after, "reaped_rows", "retracts")
    assert events == {"reaped_rows": 2, "retracts": 1}, events
    assert after["steps"] - steps_before < 14, "a pass ran for an aborted row"
    flush(rig)
    return events


def abort_running(rig: Rig) -> dict[str, Any]:
    """A row is aborted while it runs and while its prompt is half filled."""
    flush(rig)
    rig.use(ScriptedPolicy(lambda snapshot: Wishes(chunk={"b": 16})))

    def script(rig: Rig) -> None:
        if rig.step == 4:
            rig.scheduler.abort_request(AbortReq(rid="a"))
            rig.scheduler.abort_request(AbortReq(rid="b"))

    rig.submit("a", prompt(44, 60), 60)
    rig.submit("b", prompt(45, 200), 60)
    rig.run(script)
    assert all(rig.reqs[rid].finished() for rid in "ab")
    assert len(rig.reqs["a"].output_ids) < 10
    flush(rig)
    return {}


def pauses(rig: Rig) -> dict[str, Any]:
    """Pause in both modes in the middle of everything; the outputs stay what they were."""
    jobs = {"a": (prompt(46, 50), -10), "b": (prompt(47, 180), -10), "on": (prompt(48, 20), 0)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    rig.use(ScriptedPolicy(lambda snapshot: Wishes(chunk={"b": 20}, checkpoint=True)))

    def script(rig: Rig) -> None:
        s = rig.scheduler
        for step, mode in ((5, "in_place"), (9, "retract"), (15, "retract")):
            if rig.step == step:
                s.pause_generation(PauseGenerationReqInput(mode=mode))
                assert s._engine_paused
                s.continue_generation(ContinueGenerationReqInput())

    # the rig's script runs inside the choice of a batch: pausing there would be undone at once,
    # so the pause happens where SGLang does it, between two iterations
    s = rig.scheduler
    receive = s.process_input_requests

    def between(requests: list[Any]) -> None:
        receive(requests)
        script(rig)

    s.process_input_requests = between
    run_and_compare(rig, jobs, expected, lambda rig: None)
    del s.process_input_requests
    events = gained(before, counters(rig), "retracts")
    assert events["retracts"] >= 4, events
    return events


def penalties(rig: Rig) -> dict[str, Any]:
    """Rows with penalties are parked and rebuilt; without the overlap loop nothing may change."""
    if rig.scheduler.enable_overlap:
        return {"skipped": "SGLang's own penalties lag by one token with the overlap loop"}
    params = {"frequency_penalty": 0.9, "presence_penalty": 0.6, "repetition_penalty": 1.3}

    def run(policy: ScriptedPolicy) -> list[list[int]]:
        flush(rig)
        rig.use(policy)
        rig.submit("a", prompt(49, 40), 24, **params)
        rig.submit("b", prompt(50, 55), 24)
        rig.submit("c", prompt(51, 35), 24, repetition_penalty=1.7)
        rig.run()
        return [rig.output(rid) for rid in "abc"]

    before = counters(rig)
    expected = run(ScriptedPolicy())
    wish = lambda snapshot: Wishes(park={"abc"[rig.step % 3]})  # noqa: E731
    assert run(ScriptedPolicy(wish)) == expected
    plain = run(ScriptedPolicy())
    assert plain == expected
    return gained(before, counters(rig), "parks")


def logprobs(rig: Rig) -> dict[str, Any]:
    """A row with logprobs runs beside others, is parked, and keeps its numbers."""

    def run(policy: ScriptedPolicy) -> tuple[list[int], list[float]]:
        flush(rig)
        rig.use(policy)
        request = rig.request("lp", prompt(52, 60), 24)
        request.return_logprob, request.top_logprobs_num = True, 3
        rig.scheduler.handle_generate_request(request)
        rig.reqs["lp"] = rig.scheduler.waiting_queue[-1]
        rig.submit("b", prompt(53, 130), 24)
        rig.run()
        values = rig.reqs["lp"].logprob.output_token_logprobs_val
        return rig.output("lp"), [round(value, 3) for value in values]

    def wish(snapshot: Snapshot) -> Wishes:
        # a row with logprobs does not mix: keep the other one out while one of them is prefilled
        lp, b = snapshot.rows.get("lp"), snapshot.rows.get("b")
        filling = any(r is not None and r.phase in (Phase.WAITING, Phase.PREFILL) for r in (lp, b))
        other = {"b"} if lp is not None and lp.phase is not Phase.DECODE else {"lp"}
        return Wishes(
            park=(other if filling else ({"lp"} if rig.step % 4 == 0 and disturbed else set())),
            hold=other if filling else set(), chunk={"b": 40},
        )

    disturbed = False
    expected = run(ScriptedPolicy(wish))
    disturbed = True
    assert run(ScriptedPolicy(wish)) == expected
    assert len(expected[1]) == 24
    return {"values": len(expected[1])}


def slots_for_online(rig: Rig) -> dict[str, Any]:
    """Offline rows want every slot; an online request starts in the very next step."""
    flush(rig)
    rig.use(conserve())
    started: dict[str, int] = {}

    def script(rig: Rig) -> None:
        s = rig.scheduler
        if rig.step == 12:
            assert s.rows.roster.num_waiting > 0, "offline rows left the queue empty"
            started["held"] = len(s.rows.holding)
            rig.submit("on", prompt(60, 30), 4, priority=0)
        if rig.step == 13:
            started["online"] = int(s.rows["on"].row.holds_slot)

    for i in range(20):
        rig.submit(f"o{i}", prompt(70 + i, 20), 30)
    rig.run(script)
    share = rig.scheduler.snapshots.resources().reserved_slots
    assert started == {"held": 16 - share, "online": 1}, (started, share)
    flush(rig)
    return started


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
    """An online request arrives through the socket while an offline pass runs, and stops it."""
    jobs = {"off": (prompt(90, 400), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    policy = rig.use(ScriptedPolicy())
    policy.decide = lambda arrival, step: Decision.STOP_AT_NEXT_SAFEPOINT
    layers = rig.scheduler.tp_worker.model_runner.model.model.layers
    sent: list[int] = []

    def arrive(_module: Any, _args: Any) -> None:
        step = rig.scheduler._unsettled
        if step is not None and not sent and step.tokens(online=False) > 100:
            sent.append(1)
            rig.send(rig.request("on", prompt(91, 25), 6, priority=0))
            deadline = time.monotonic() + 5.0
            while rig.scheduler.monitor.num_stops == before["stops_raised"]:
                assert time.monotonic() < deadline, "the monitor saw nothing"
                time.sleep(0.001)

    handle = layers[2].register_forward_pre_hook(arrive)
    run_and_compare(rig, jobs, expected, lambda rig: None)
    handle.remove()
    after = counters(rig)
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


SCENARIOS = [
    aborts, abort_running, pauses, penalties, logprobs, slots_for_online, online_prefixes_stay,
    monitor_stops, idles,
]  # fmt: skip


def main() -> None:
    rig = Rig(overlap=sys.argv[1] == "1")
    results: dict[str, Any] = {}
    for scenario in SCENARIOS:
        try:
            results[scenario.__name__] = {"error": None, **scenario(rig)}
        except Exception:  # noqa: BLE001 - every scenario is reported
            results[scenario.__name__] = {"error": traceback.format_exc()}
            break
    print("RESULTS " + json.dumps(results))


if __name__ == "__main__":
    main()
