"""An engine whose steps SGLang chooses, as plans cannot carry an option. In the engine's venv."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sglang.srt.managers.io_struct import AbortReq, GetInternalStateReq, SetInternalStateReq

from engine_adapter.scheduling.policies.settings import LEVEL_KNOB
from tests.engine.scheduler_rig import Rig, prompt
from tests.engine.tiny_models import tiny_model

JOBS = {"row": (prompt(41, 200), -10), "chat": (prompt(42, 60), 0)}


def answers(rig: Rig) -> dict[str, list[int]]:
    """Through SGLang's loop and the socket that a monitor would own."""
    for rid, (ids, priority) in JOBS.items():
        rig.send(rig.request(rid, ids, 24, priority=priority))
    rig.run(at_least=20)
    return {rid: rig.output(rid) for rid in JOBS}


def order_of(rig: Rig) -> list[str]:
    """Which request SGLang takes first, where a row came before chat and a probe without class."""
    started: list[str] = []

    def script(rig: Rig) -> None:
        for rid, req in rig.reqs.items():
            if req.output_ids and rid not in started:
                started.append(rid)

    rig.submit("row_2", prompt(43, 500), 4, priority=-10)
    rig.submit("probe", prompt(44, 400), 4, priority=None)
    rig.submit("chat_2", prompt(45, 500), 4, priority=0)
    rig.run(script)
    return started


def aborted(rig: Rig) -> dict[str, Any]:
    """A request that is aborted while it decodes, by the message of a caller that went away."""

    def script(rig: Rig) -> None:
        if rig.step == 6:
            rig.scheduler.abort_request(AbortReq(rid="gone"))

    rig.submit("gone", prompt(46, 40), 200)
    rig.run(script)
    return {"tokens": len(rig.reqs["gone"].output_ids), "live": live(rig)}


def live(rig: Rig) -> Any:
    return rig.scheduler.get_internal_state(GetInternalStateReq()).internal_state["coserve"]["live"]


def main() -> None:
    rig = Rig(disable_radix_cache=True, model=tiny_model("llama", Path(sys.argv[1]) / "model"))
    reply = rig.scheduler.set_internal_state(SetInternalStateReq(server_args={LEVEL_KNOB: 0}))
    found = {
        "answers": answers(rig),
        "order": order_of(rig),
        "aborted": aborted(rig),
        "report": rig.scheduler.coserve_state(),
        "level taken": reply.updated,
        "flushed": rig.scheduler.flush_cache(),
    }
    print("RESULTS " + json.dumps(found))


if __name__ == "__main__":
    main()
