"""Forced stops, retracts and restores on two tensor-parallel ranks, over gloo on one CPU.

``python coserving_two_ranks.py OVERLAP DTYPE`` forks the second rank itself. Rank 0 plans and is
told when to stop; rank 1 has to do the same at the same layers, or a collective operation hangs and
the run ends by its timeout. What both did is compared.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "0|1"
os.environ["COSERVE_HOST_KV_TOKENS"] = "2048"

from sglang.srt.managers.io_struct import ShutdownReq
from sglang.srt.server_args import PortArgs, ServerArgs

from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.versions.installed import seam
from tests.engine.scheduler_rig import NUM_LAYERS, Rig, prompt, tiny_llama
from tests.engine.scripted_policy import ScriptedPolicy, Wishes

EVENTS = ("aborts", "drops", "parks", "retracts", "restored_requests", "restored_tokens")
JOBS = {"a": (130, -10), "b": (90, -10), "on": (70, 0), "on2": (40, 0)}


def send_jobs(rig: Rig, phase: str) -> None:
    for i, (rid, (length, priority)) in enumerate(JOBS.items()):
        request = rig.request(f"{phase}-{rid}", prompt(200 + i, length), 20, priority=priority)
        request.extra_key = phase  # no prefix of one phase is found in the other
        rig.send(request)


def lead(rig: Rig) -> dict[str, Any]:
    """Rank 0: first everything undisturbed, then everything with stops and retracts."""
    state: dict[str, Any] = {"phase": "calm", "stops": 0, "retracted": 0}
    written: list[Any] = []
    compared: list[int] = []
    layers = [layer for _ in range(4) for layer in range(1, NUM_LAYERS)]

    def kv_of_a() -> Any:
        """What this rank holds of the request: its heads, shape [2, layers, tokens, ...]."""
        req = rig.scheduler.execution.requests.get("rough-a").req
        table = rig.scheduler.req_to_token_pool.req_to_token
        slots = table[seam.slot(req), : seam.kv_len(req)].long()
        return rig.scheduler.execution.checkpointer.pool.device_tokens(slots).clone()

    def wish(snapshot: Snapshot) -> Wishes:
        if state["phase"] == "calm":
            return Wishes()
        online = {f"rough-{rid}" for rid in ("on", "on2")}
        # Once both offline requests are over nothing is left to stop, and chat would wait for ever.
        stoppable = snapshot.requests.keys() & {"rough-a", "rough-b"}
        few = rig.scheduler.execution.counters.aborts < 6
        late = online if stoppable and few else set()
        request = snapshot.requests.get("rough-a")
        retract = set()
        due = 5 * (state["retracted"] + 1)
        ready = request is not None and request.phase is Phase.DECODE and not request.in_flight
        if request is not None and ready and written:
            then, now = written.pop(), kv_of_a()
            assert now.shape == then.shape
            assert (now == then).all(), "restored KV differs from what was written"
            compared.append(now.shape[2])
        if (
            request is not None
            and ready
            and state["retracted"] < 3
            and request.output_tokens >= due
        ):
            state["retracted"] += 1
            written.append(kv_of_a())
            retract = {request.rid}
        park = {"rough-a"} if request is not None and request.in_flight else set()
        park |= {"rough-b"} if snapshot.step_id % 4 == 0 else set()
        return Wishes(hold=late, retract=retract, park=park, chunk={"rough-b": 16}, checkpoint=True)

    def script(rig: Rig) -> None:
        live = [r for r in rig.reqs.values() if not r.finished()]
        if state["phase"] == "rough" and rig.step % 2 and state["stops"] < len(layers):
            rig.stop_at[rig.scheduler.execution.snapshots._step_id + 1] = layers[state["stops"]]
            state["stops"] += 1
        if len(rig.reqs) == len(JOBS) and not live and state["phase"] == "calm":
            state["phase"] = "rough"
            send_jobs(rig, "rough")
        elif len(rig.reqs) == 2 * len(JOBS) and not live and state["phase"] == "rough":
            state["phase"] = "done"
            rig.send(ShutdownReq())

    rig.use(ScriptedPolicy(wish))
    send_jobs(rig, "calm")
    rig.run(script)
    for rid in JOBS:
        calm, rough = rig.output(f"calm-{rid}"), rig.output(f"rough-{rid}")
        assert calm == rough, f"{rid}: {rough} instead of {calm}"
    assert len(compared) == 3, compared
    return summary(rig)


def summary(rig: Rig) -> dict[str, Any]:
    state = rig.scheduler.coserve_state()
    found = {name: state[name] for name in EVENTS}
    found["layers"] = state["stop_layers"]
    found["outputs"] = {rid: rig.output(rid) for rid in rig.reqs}
    return found


def main() -> None:
    overlap, dtype = sys.argv[1] == "1", sys.argv[2]
    folder = Path(tempfile.mkdtemp(prefix="coserve-ranks-"))
    model = tiny_llama(folder / "model")
    ports = PortArgs.init_new(ServerArgs(model_path=str(model), device="cpu", tp_size=2))

    def rig_of(rank: int) -> Rig:
        return Rig(overlap=overlap, dtype=dtype, rank=rank, ports=ports, model=model, tp_size=2)

    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            rig = rig_of(1)
            rig.run()
            os.write(writing, json.dumps(summary(rig)).encode())
        except BaseException:  # noqa: BLE001 - a fork ends here, whatever happens
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    led = lead(rig_of(0))
    with os.fdopen(reading) as told:
        said = told.read()
    assert said, "rank 1 did not finish"
    followed = json.loads(said)
    assert followed == led, f"rank 1 did {followed}, rank 0 did {led}"
    del led["outputs"]
    print("RESULTS " + json.dumps(led))


if __name__ == "__main__":
    main()
