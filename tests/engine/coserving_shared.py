"""Requests that share a system prompt, and an online prompt that needs nearly all of the KV.

``python coserving_shared.py OVERLAP KV_TOKENS SCENARIO...``: one scheduler, prints one JSON object.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine_adapter.scheduling.targets import Slo
from tests.engine.coserving_arrivals import conserve
from tests.engine.scenario_steps import flush, report
from tests.engine.scheduler_rig import Rig, prompt


def shared_by_all(rig: Rig) -> dict[str, Any]:
    """KV 2048. Requests that share most of their KV: no single retract frees it, all of them do."""
    flush(rig)
    rig.scheduler.execution.snapshots.slo = Slo(0.02, 0.02)
    rig.use(conserve())
    head = prompt(5, 700)
    for i in range(3):
        rig.submit(f"o{i}", head + prompt(10 + i, 24), 60)
    rig.run(
        lambda rig: rig.submit("on", prompt(99, 1500), 8, priority=0) if rig.step == 12 else None,
        limit=600,
    )
    assert len(rig.output("on")) == 8
    return {}


def shared_with_chat(rig: Rig) -> dict[str, Any]:
    """KV 800. More than half of the KV is free, and one online prompt wants more than that."""
    rig.use(conserve())
    head = prompt(5, 340)
    rig.submit("o0", head + prompt(10, 10), 60)

    def script(rig: Rig) -> None:
        if rig.step == 4:
            rig.submit("y", head + prompt(11, 4), 30, priority=0)
        if rig.step == 9:
            rig.submit("x", prompt(99, 520), 8, priority=0)

    rig.run(script, limit=600)
    assert [len(rig.output(rid)) for rid in ("o0", "y", "x")] == [60, 30, 8]
    return {}


def shared_beside_chat(rig: Rig) -> dict[str, Any]:
    """KV 2048. The same while an online request decodes: the prompt does not wait for its end.

    Where the two share steps it would, if pages were counted request by request.
    """
    flush(rig)
    rig.scheduler.execution.snapshots.slo = Slo(0.02, 0.02)
    rig.use(conserve())
    head = prompt(5, 700)
    for i in range(3):
        rig.submit(f"o{i}", head + prompt(10 + i, 24), 60)

    def script(rig: Rig) -> None:
        if rig.step == 2:
            rig.submit("earlier", prompt(98, 20), 200, priority=0)
        if rig.step == 30:
            rig.submit("late", prompt(99, 1400), 8, priority=0)
        if rig.reqs.get("late") is not None and rig.reqs["late"].finished():
            had.append(len(rig.reqs["earlier"].output_ids))

    had: list[int] = []
    rig.run(script, limit=900)
    assert had[0] < 150, had
    assert [len(rig.output(rid)) for rid in ("late", "earlier", "o0")] == [8, 200, 60]
    return {"earlier_had": had[0]}


SCENARIOS = {
    found.__name__: found for found in (shared_by_all, shared_with_chat, shared_beside_chat)
}

if __name__ == "__main__":
    report(
        [SCENARIOS[name] for name in sys.argv[3:]],
        Rig(overlap=sys.argv[1] == "1", kv_tokens=int(sys.argv[2]), slots=8),
    )
