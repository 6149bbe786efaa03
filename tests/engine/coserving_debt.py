"""What SGLang assumes about its requests and co-serving changes: aborts, pauses, state of requests.

``python coserving_debt.py OVERLAP``: scenarios on one real scheduler, printed as one JSON object.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sglang.srt.managers.io_struct import (
    AbortReq,
    ContinueGenerationReqInput,
    PauseGenerationReqInput,
)

from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.report import live_ids
from tests.engine.coserving_arrivals import ARRIVALS
from tests.engine.coserving_grammars import GRAMMARS
from tests.engine.coserving_overlap import OVERLAP
from tests.engine.coserving_pauses import PAUSES
from tests.engine.coserving_profiling import PROFILING
from tests.engine.scenario_steps import (
    counters,
    flush,
    gained,
    report,
    run_and_compare,
    undisturbed,
)
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes


def aborts(rig: Rig) -> dict[str, Any]:
    """Parked, half-filled and retracted requests are aborted, and no pass runs for them."""
    flush(rig)
    before = counters(rig)
    seen: dict[str, Any] = {}

    def wish(snapshot: Snapshot) -> Wishes:
        requests = snapshot.requests
        parked = rig.step > 8
        retract = (
            {"c"} if rig.step == 12 and "c" in requests and not requests["c"].in_flight else set()
        )
        return Wishes(
            park={"a", "b", "c"} if parked else set(),
            retract=retract,
            chunk={"b": 16},
            hold={"c"} if parked else set(),
            checkpoint=True,
        )

    rig.use(ScriptedPolicy(wish))

    def script(rig: Rig) -> None:
        s = rig.scheduler
        if rig.step == 14:
            seen["phases"] = [s.execution.requests[r].request.phase.name for r in "abc"]
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
    assert (after["holding"], after["waiting"]) == (0, 0), after
    assert seen["host"] < after["host_free_pages"] == after["host_total_pages"], seen
    events = gained(before, after, "reaped_requests", "retracts")
    assert events == {"reaped_requests": 2, "retracts": 1}, events
    assert after["steps"] - steps_before < 14, "a pass ran for an aborted row"
    flush(rig)
    return events


def abort_running(rig: Rig) -> dict[str, Any]:
    """A request is aborted while it runs and while its prompt is half filled."""
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

    to_come = [(5, "in_place"), (9, "retract"), (15, "retract")]
    paused_at: list[int] = []

    def script(rig: Rig) -> None:
        s = rig.scheduler
        if s._engine_paused:
            paused_at.append(rig.step)
            if len(paused_at) % 3 == 0:
                assert len(set(paused_at[-3:])) == 1, "a step was taken in a pause"
                s.continue_generation(ContinueGenerationReqInput())
        elif to_come and rig.step >= to_come[0][0]:
            s.pause_generation(PauseGenerationReqInput(mode=to_come.pop(0)[1]))
            assert s._engine_paused

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
    assert len(paused_at) == 9, paused_at
    return events


def penalties(rig: Rig) -> dict[str, Any]:
    """Requests with penalties are parked and rebuilt; nothing may change."""
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
    events = gained(before, counters(rig), "parks")
    assert events["parks"] > 10, events
    assert run(ScriptedPolicy()) == expected
    return events


def logprobs(rig: Rig) -> dict[str, Any]:
    """A request with logprobs runs beside others, is parked, and keeps its numbers."""
    rest_steps: list[int] = []

    def run(policy: ScriptedPolicy) -> tuple[list[int], list[float]]:
        flush(rig)
        rig.use(policy)
        request = rig.request("lp", prompt(52, 60), 24)
        request.return_logprob, request.top_logprobs_num = True, 3
        rig.scheduler.handle_generate_request(request)
        rig.submit("b", prompt(53, 130), 24)
        rig.run()
        values = rig.reqs["lp"].logprob.output_token_logprobs_val
        return rig.output("lp"), [round(value, 3) for value in values]

    def wish(snapshot: Snapshot) -> Wishes:
        # a request with logprobs does not mix: keep the other one out while one of them is
        # prefilled
        lp, b = snapshot.requests.get("lp"), snapshot.requests.get("b")
        filling = any(r is not None and r.phase in (Phase.WAITING, Phase.PREFILL) for r in (lp, b))
        other = {"b"} if lp is not None and lp.phase is not Phase.DECODE else {"lp"}
        rests = disturbed and not filling and lp is not None and rig.step % 4 == 0
        if rests:
            rest_steps.append(rig.step)
        return Wishes(
            park=other if filling else ({"lp"} if rests else set()),
            hold=other if filling else set(),
            chunk={"b": 40},
        )

    disturbed = False
    expected = run(ScriptedPolicy(wish))
    before, disturbed = counters(rig), True
    assert not rest_steps
    assert run(ScriptedPolicy(wish)) == expected
    assert len(expected[1]) == 24
    assert len(rest_steps) > 3, rest_steps
    return {"values": len(expected[1]), **gained(before, counters(rig), "parks")}


def main() -> None:
    states = [aborts, abort_running, pauses, penalties, logprobs]
    scenarios = [*states, *PAUSES, *GRAMMARS, *ARRIVALS, *OVERLAP, *PROFILING]
    report(scenarios, Rig(overlap=sys.argv[1] == "1"))


if __name__ == "__main__":
    main()
