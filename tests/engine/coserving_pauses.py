"""Pauses with aborts and new weights; penalties and log-probabilities across a retract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.managers.io_struct import (
    AbortReq,
    ContinueGenerationReqInput,
    PauseGenerationReqInput,
)
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import Snapshot
from tests.engine.scenario_steps import NEW, counters, flush, gained
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy, Wishes


def _in_a_pause(rig: Rig, before: Callable[[], None], during: Callable[[], None]) -> None:
    """Pause (retract) after ten steps, with calls between two iterations of the loop."""
    s = rig.scheduler
    receive = s.process_input_requests
    paused: list[int] = []

    def between(requests: list[Any]) -> None:
        receive(requests)
        if s._engine_paused:
            during()
            s.continue_generation(ContinueGenerationReqInput())
        elif rig.step >= 10 and not paused:
            paused.append(rig.step)
            before()
            s.pause_generation(PauseGenerationReqInput(mode="retract"))

    s.process_input_requests = between
    rig.run(limit=300)
    del s.process_input_requests
    assert paused


def aborted_then_paused(rig: Rig) -> dict[str, Any]:
    """Aborts and a pause that retracts come in one batch of messages."""
    flush(rig)
    rig.use(ScriptedPolicy(lambda snapshot: Wishes(chunk={"b": 16}, checkpoint=True)))
    rig.submit("a", prompt(401, 60), 40)
    rig.submit("b", prompt(402, 300), 40)

    def abort() -> None:
        for rid in "ab":
            rig.scheduler.abort_request(AbortReq(rid=rid))

    _in_a_pause(rig, abort, lambda: None)
    assert all(rig.reqs[rid].finished() for rid in "ab")
    after = counters(rig)
    assert after["host_free_pages"] == after["host_total_pages"], after
    flush(rig)
    return {}


def same_id_again(rig: Rig) -> dict[str, Any]:
    """In a pause a retracted request is aborted and another request comes with its id."""
    flush(rig)
    rig.use(ScriptedPolicy(lambda snapshot: Wishes(checkpoint=True)))
    rig.submit("b", prompt(403, 30), NEW)
    rig.run()
    want = rig.output("b")
    flush(rig)

    def again() -> None:
        rig.scheduler.abort_request(AbortReq(rid="b"))
        rig.submit("b", prompt(403, 30), NEW)

    rig.submit("b", prompt(404, 60), NEW)
    _in_a_pause(rig, lambda: None, again)
    assert rig.output("b") == want
    flush(rig)
    return {}


def new_weights(rig: Rig) -> dict[str, Any]:
    """Weights change in a pause that retracts: no KV of the old ones is read afterwards."""
    flush(rig)
    rig.use(ScriptedPolicy(lambda snapshot: Wishes(checkpoint=True)))
    s = rig.scheduler
    weight = s.tp_worker.model_runner.model.model.embed_tokens.weight
    old, said = weight.detach().clone(), []

    def update() -> None:
        said.append(len(rig.reqs["a"].output_ids))
        with torch.no_grad():
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)) / 4)
        s.tree_cache.evict(EvictParams(num_tokens=1 << 20))

    ids = prompt(405, 60)
    rig.submit("a", ids, NEW)
    _in_a_pause(rig, lambda: None, update)
    got = rig.output("a")
    flush(rig)
    rig.submit("ref", ids + got[: said[0]], NEW - said[0])
    rig.run()
    want = rig.output("ref")
    with torch.no_grad():
        weight.copy_(old)
    flush(rig)
    assert got[said[0] :] == want, f"{got[said[0] :]} instead of {want}"
    return {}


def penalties_anew(rig: Rig) -> dict[str, Any]:
    """Requests with penalties lose their KV; computing it again knows what they said."""
    params = {"frequency_penalty": 0.9, "presence_penalty": 0.6, "repetition_penalty": 1.3}
    before = counters(rig)
    for seed in range(60, 64):
        at: list[int] = []

        def wish(snapshot: Snapshot, at: list[int] = at) -> Wishes:
            request = snapshot.requests.get("a")
            if (
                request is None
                or request.phase is not Phase.DECODE
                or not at
                or request.output_tokens < at[0]
            ):
                return Wishes(anew={"a"})
            if request.in_flight:
                return Wishes(park={"a"}, anew={"a"})
            at.pop(0)
            return Wishes(retract={"a"}, anew={"a"})

        outputs = []
        for times in ([], [5, 9, 13, 17]):
            flush(rig)
            at[:] = times
            rig.use(ScriptedPolicy(wish))
            rig.submit("a", prompt(seed, 40), NEW, **params)
            rig.run()
            outputs.append(rig.output("a"))
        assert outputs[0] == outputs[1], outputs
    events = gained(before, counters(rig), "retracts")
    assert events["retracts"] == 16, events
    flush(rig)
    return events


def prompt_logprobs(rig: Rig) -> dict[str, Any]:
    """A request that is asked for its prompt's log-probabilities is retracted half filled."""
    retracted: list[int] = []

    def run(policy: ScriptedPolicy) -> tuple[list[int], list[float | None]]:
        flush(rig)
        rig.use(policy)
        request = rig.request("lp", prompt(52, 200), 8)
        request.return_logprob, request.logprob_start_len, request.top_logprobs_num = True, 0, 2
        rig.scheduler.handle_generate_request(request)
        rig.run(limit=400)
        values = rig.reqs["lp"].logprob.input_token_logprobs_val
        return rig.output("lp"), [None if v is None else round(v, 3) for v in values]

    def wish(snapshot: Snapshot) -> Wishes:
        request = snapshot.requests.get("lp")
        if (
            request is None
            or request.phase is not Phase.PREFILL
            or request.computed_tokens < 96
            or retracted
        ):
            return Wishes(chunk={"lp": 48}, checkpoint=True)
        if request.in_flight:
            return Wishes(park={"lp"}, checkpoint=True)
        retracted.append(request.computed_tokens)
        return Wishes(retract={"lp"}, checkpoint=True)

    expected = run(ScriptedPolicy(lambda snapshot: Wishes(chunk={"lp": 48})))
    assert run(ScriptedPolicy(wish)) == expected
    assert retracted
    assert len(expected[1]) == 200
    flush(rig)
    return {}


PAUSES = [aborted_then_paused, same_id_again, new_weights, penalties_anew, prompt_logprobs]
