"""Drive the real scheduler with a policy, coin throws by default, under SGLang's strict checks.

``python coserving_random_run.py STEPS SEED OVERLAP PAGE_SIZE DTYPE [POLICY]``: requests of both
classes come, go and are aborted while the policy parks, retracts, restores, cuts prompts anywhere
and stops passes at random layers. Prints ``RESULTS {...}``; ends with an error if a check of SGLang
fails.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

os.environ["COSERVE_HOST_KV_TOKENS"] = "640"  # runs full: some requests come back by recomputation
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import FINISH_ABORT

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from lab.policies.random_valid import RandomValid
from tests.engine.scheduler_rig import NUM_LAYERS, Rig, prompt
from tests.engine.scripted_policy import ScriptedPolicy


def compare_with_undisturbed(rig: Rig, sent: list[str]) -> int:
    """Run everything that was not aborted again, eight at a time and undisturbed."""
    first = {rid: rig.reqs[rid] for rid in sent}
    whole = [r for r in sent if not isinstance(first[r].finished_reason, FINISH_ABORT)]
    rig.use(ScriptedPolicy())
    for begin in range(0, len(whole), 8):
        for rid in whole[begin : begin + 8]:
            req = first[rid]
            rig.submit(rid, list(req.origin_input_ids), req.sampling_params.max_new_tokens)
        rig.run()
        for rid in whole[begin : begin + 8]:
            got, want = list(first[rid].output_ids), rig.output(rid)
            assert rig.same(rid, got, want), f"{rid}: {got} instead of {want}"
    return len(whole)


def main() -> None:
    steps, seed, overlap = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
    page_size, dtype = int(sys.argv[4]), sys.argv[5]
    named = sys.argv[6] if len(sys.argv) > 6 else ""
    kv_tokens = 480 if named else 960  # policies retract for want of room, coins without
    rig = Rig(overlap=overlap, dtype=dtype, kv_tokens=kv_tokens, slots=8, page_size=page_size)
    guess = Coefficients(1e-4, 0.0, 1e-7, 0.0, 1e-4, 1e-3)
    settings = PolicySettings(safepoint_interval_s=1e-9)  # a safepoint before every layer
    model = PolynomialModel(guess, guess, guess)
    rig.use(
        create_policy(named, model, settings) if named else RandomValid(model, settings, seed=seed)
    )
    dice = random.Random(seed)
    sent: list[str] = []

    def script(rig: Rig) -> None:
        s = rig.scheduler
        if s.execution.counters.steps >= steps:
            rig.at_least = 0  # no more requests: the run ends with the last of them
            return
        if dice.random() < 0.12 and len(s.waiting_queue) < 12:
            rid = f"r{len(sent):04d}"
            sent.append(rid)
            priority = dice.choice([0, -1, -10, -10])
            shared = prompt(5, 64)[: dice.choice([0, 0, 40, 64])]
            ids = shared + prompt(len(sent), dice.randint(2, 180))
            rig.submit(rid, ids, dice.randint(1, 40), priority=priority)
        if dice.random() < 0.02 and s.execution.requests.holding:
            s.abort_request(AbortReq(rid=dice.choice(list(s.execution.requests.holding))))
        if dice.random() < 0.2:
            rig.stop_at[s.execution.snapshots._step_id + 1] = dice.randint(1, NUM_LAYERS - 1)

    rig.run(script, limit=steps * 6, at_least=steps * 6)
    state = rig.scheduler.coserve_state()
    unfinished = [rid for rid in sent if not rig.reqs[rid].finished()]
    assert not unfinished, unfinished
    assert state["host_free_pages"] == state["host_total_pages"], "host pages leaked"
    assert rig.scheduler.flush_cache()
    compared = compare_with_undisturbed(rig, sent)
    keys = (
        "steps", "aborts", "drops", "parks", "retracts", "restored_requests", "restored_tokens",
        "recomputed_tokens", "reaped_requests", "rejected_plans", "checkpointed_pages",
    )  # fmt: skip
    found = {"requests": len(sent), "compared": compared, **{k: state[k] for k in keys}}
    if rig.near_ties is not None:
        found["near_ties"] = rig.near_ties.found
    print("RESULTS " + json.dumps(found))


if __name__ == "__main__":
    main()
