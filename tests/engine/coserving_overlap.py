"""Between two launches: late results, unread arrivals, requests that have ended."""

from __future__ import annotations

import time
from array import array
from types import SimpleNamespace
from typing import Any

from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.mem_cache.radix_cache import RadixKey

from engine_adapter.scheduling.plan import Decision, StepPlan
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.versions.installed import seam
from tests.engine.scenario_steps import (
    NEW,
    counters,
    flush,
    gained,
    run_and_compare,
    undisturbed,
    wipe,
)
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes

READ_LIMIT_S = 5.0


def ends_before_the_launch(rig: Rig) -> dict[str, Any]:
    """A request's last result comes after the next step was composed, and that step is to stop.

    What the request said is in the prefix tree by then, with the slot which that step writes.
    """
    jobs = {"on": (prompt(301, 40), 0), "off": (prompt(302, 50), -10)}
    jobs["late"] = (prompt(303, 400), -10)
    last = NEW - 6

    def run(*, stop: bool) -> Any:
        def wish(snapshot: Snapshot) -> Wishes:
            request = snapshot.requests.get("off")
            if (
                stop
                and request is not None
                and request.output_tokens >= last - 1
                and not rig.stop_at
            ):
                rig.stop_at[snapshot.step_id] = 3
            started = request is not None and request.output_tokens >= last - 3
            return Wishes(
                hold=set() if started or request is None else {"late"}, chunk={"late": 32}
            )

        flush(rig)
        wipe(rig)  # the same slots held the same tokens in the run before
        rig.use(ScriptedPolicy(wish))
        for rid, (ids, priority) in jobs.items():
            rig.submit(rid, ids, last if rid == "off" else NEW, priority=priority)
        rig.run()
        rig.stop_at.clear()
        req = rig.reqs["off"]
        tokens = array("q", [*req.origin_input_ids, *req.output_ids])
        key = RadixKey(token_ids=tokens, extra_key=None)
        found = seam.held_slots(rig.scheduler.tree_cache, key)
        return len(found), rig.scheduler.execution.checkpointer.pool.device_tokens(found).clone()

    num_calm, calm = run(stop=False)
    before = counters(rig)
    num, kv = run(stop=True)
    events = gained(before, counters(rig), "drops")
    flush(rig)
    assert num == num_calm >= 50 + last - 1, (num, num_calm)
    assert (kv == calm).all(), "the prefix tree has KV that no pass has written"
    # With the overlap loop the step may not lose the request; without it the result was there
    # before.
    assert events["drops"] == (0 if rig.scheduler.enable_overlap else 1), events
    return {"cached": num, **events}


def aborted_prompts_go_no_further(rig: Rig) -> dict[str, Any]:
    """A prompt is aborted while it is filled, chunk after chunk without a break."""
    flush(rig)
    before = counters(rig)
    policy = rig.use(ScriptedPolicy(lambda snapshot: Wishes(chunk={"b": 16})))

    def script(rig: Rig) -> None:
        if rig.step == 4:
            rig.scheduler.abort_request(AbortReq(rid="b"))

    rig.submit("b", prompt(304, 400), 60)
    rig.run(script)
    assert rig.reqs["b"].finished()
    chunks = sum(bool(step.plan.prefill) for step in policy.finished)
    assert chunks <= 5, f"{chunks} chunks, 25 are the whole prompt"
    flush(rig)
    return {"chunks": chunks, **gained(before, counters(rig), "reaped_requests")}


def unread_arrivals(rig: Rig) -> dict[str, Any]:
    """An online request comes after the scheduler has read and before the step begins."""
    jobs = {"off": (prompt(305, 400), -10)}
    expected = undisturbed(rig, jobs)
    before = counters(rig)
    sent: list[int] = []

    class Between(ScriptedPolicy):
        def plan(self, snapshot: Snapshot) -> StepPlan:
            if rig.step == 2 and not sent:
                rig.send(rig.request("on", prompt(306, 30), NEW, priority=0))
                sent.append(snapshot.step_id)
                until_s = time.monotonic() + READ_LIMIT_S
                while not rig.scheduler.monitor.has_messages:
                    assert time.monotonic() < until_s, "the monitor reads nothing"
                    time.sleep(0.001)
            return super().plan(snapshot)

    policy = rig.use(Between(lambda snapshot: Wishes(chunk={"off": 64})))
    policy.decide = lambda arrival, step: Decision.STOP_AT_NEXT_SAFEPOINT
    run_and_compare(rig, jobs, expected, lambda rig: None)
    assert rig.reqs["on"].finished()
    stopped = [s for s in policy.finished if s.outcome.stopped_at_layer is not None]
    assert [s.plan.step_id for s in stopped] == sent, (stopped, sent)
    events = gained(before, counters(rig), "aborts", "arrivals_seen", "stops_raised")
    assert events == {"aborts": 1, "arrivals_seen": 1, "stops_raised": 1}, events
    return events


def least_tokens(rig: Rig) -> dict[str, Any]:
    """`min_tokens` counts the token that is still on its way, parked or not."""
    flush(rig)
    rig.use(ScriptedPolicy(lambda snapshot: Wishes(park={"a"} if rig.step % 5 == 0 else set())))
    counted: list[tuple[int, int]] = []

    def script(rig: Rig) -> None:
        batch = rig.scheduler.execution.actuator.decode_requests._last
        if batch is None or rig.reqs["a"] not in batch.reqs or rig.reqs["a"].finished():
            return
        for penalizer in batch.sampling_info.penalizer_orchestrator.penalizers.values():
            if penalizer.is_prepared():
                req = rig.reqs["a"]
                made = seam.kv_len(req) - len(req.origin_input_ids)
                counted.append((int(penalizer.len_output_tokens[0]), made))

    rig.submit("a", prompt(307, 40), NEW)
    rig.reqs["a"].sampling_params.min_new_tokens = 10  # refused without a tokenizer
    rig.reqs["a"].tokenizer = SimpleNamespace(additional_stop_token_ids=None, eos_token_id=1)
    rig.run(script)
    assert len(counted) > NEW // 2, counted
    assert all(had == made for had, made in counted), counted
    flush(rig)
    return {"steps": len(counted)}


OVERLAP = [ends_before_the_launch, aborted_prompts_go_no_further, unread_arrivals, least_tokens]
