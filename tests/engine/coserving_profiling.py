"""The profile is measured in the background although offline requests or chats never end."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine_adapter.scheduling.plan import SafepointMode
from engine_adapter.sglang import profiler as profiling
from engine_adapter.sglang.planner import Planner, model_before_profile
from engine_adapter.sglang.profiler import Profiler
from tests.engine.scenario_steps import NEW, flush, undisturbed
from tests.engine.scheduler_rig import Rig, prompt

QUEUED = 12
ONLINE_STEPS = {
    "ONLINE_STEPS_PER_CELL": 4,
    "ONLINE_STEPS_PER_LARGE_CELL": 8,
    "ONLINE_STEPS_BEFORE_LARGE": 64,
}


def length(i: int) -> int:
    """Requests end one by one, so that slots never are free together by themselves."""
    return NEW // 2 + 5 * i % (NEW // 2) + 1


@contextmanager
def measuring(rig: Rig) -> Iterator[dict[str, Any]]:
    """An engine that has no profile yet; filled with what became of it at the end."""
    s = rig.scheduler
    before = s.profiler, s.planner, s.execution.snapshots.slo
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = dataclasses.replace(s.coserve_settings, profile_dir=Path(folder))
        s.profiler = Profiler(s, settings, s._agreement, s.execution.safepoints)
        s.planner = Planner(settings, s.execution.counters, model_before_profile(), measuring=True)
        assert s.planner.policy_name == "sarathi_p"
        yield found
        found.update(s.profiler.progress(), policy=s.planner.policy_name)
        found["stored"] = [path.name for path in Path(folder).iterdir()]
    s.profiler, s.planner, s.execution.snapshots.slo = before
    flush(rig)
    assert (found["state"], found["policy"]) == ("ready", "conserve_v2"), found
    assert len(found["stored"]) == 1, found


def measures_beside_a_queue(rig: Rig) -> dict[str, Any]:
    """Cells need all slots and half the pool; requests keep both, and a prefix of every prompt too.

    The outputs of the requests between which cells ran are what they are without them.
    """
    s = rig.scheduler
    jobs = {f"q{i}": (prompt(200 + i, 60 + 7 * i), -10) for i in range(QUEUED)}
    expected = undisturbed(rig, jobs)
    asked: list[int] = []
    names: list[str] = []

    def keep_the_queue_full(rig: Rig) -> None:
        if s.profiler.wants_room and not asked:
            asked.append(s.profiler.progress()["cells_done"])
        while s.profiler.is_measuring and len(s.waiting_queue) < QUEUED:
            names.append(f"more{len(names)}")
            ids, priority = jobs[f"q{len(names) % QUEUED}"]
            rig.submit(names[-1], ids, length(len(names)), priority=priority)

    with measuring(rig) as state:
        profiling.PATIENCE_S, patience_s = 0.5, profiling.PATIENCE_S
        rig.run(keep_the_queue_full, limit=50_000)
        profiling.PATIENCE_S = patience_s
    assert asked, "the rows were never in the way"
    assert 0 < asked[0] < state["cells"], asked
    for i, name in enumerate(names, start=1):
        assert rig.output(name) == expected[f"q{i % QUEUED}"][: length(i)], name
    return {"rows": len(names), "cells": state["cells"], "found_room": asked[0]}


def measures_beside_a_chat(rig: Rig) -> dict[str, Any]:
    """Online requests never leave; a cell runs between few of their steps, and changes no token."""
    s = rig.scheduler
    expected = undisturbed(rig, {"chat": (prompt(220, 60), 0)})["chat"]
    names: list[str] = []
    alone: list[int] = []

    def keep_chatting(rig: Rig) -> None:
        live = [
            request
            for request in s.execution.requests.roster.requests.values()
            if request.is_online
        ]
        if names and not live and s.profiler.is_measuring:
            alone.append(rig.step)
        if s.profiler.is_measuring and not any(request.output_tokens < NEW - 8 for request in live):
            names.append(f"chat{len(names)}")
            rig.submit(names[-1], prompt(220, 60), NEW, priority=0)

    with measuring(rig) as state:
        before = {name: getattr(profiling, name) for name in ONLINE_STEPS}
        for name, num in ONLINE_STEPS.items():
            setattr(profiling, name, num)
        rig.run(keep_chatting, limit=50_000)
        for name, num in before.items():
            setattr(profiling, name, num)
    assert not alone, "the chats left it moments for cells"
    assert all(rig.output(name) == expected for name in names)
    return {"chats": len(names), "cells": state["cells"]}


def measures_armed_cells_layer_by_layer(rig: Rig) -> dict[str, Any]:
    """Where armed steps leave their graph, mixed cells run once more, armed; nothing stays so."""
    s = rig.scheduler
    safepoints = s.execution.safepoints
    names: list[str] = []

    def keep_one_busy(rig: Rig) -> None:
        if s.profiler.is_measuring and not len(s.execution.requests):
            names.append(f"job{len(names)}")
            rig.submit(names[-1], prompt(230, 60), NEW, priority=-10)

    before = safepoints.eager_modes, safepoints.num_checks
    safepoints.eager_modes = frozenset({SafepointMode.DROP})
    profiling.REPEATS, repeats = 1, profiling.REPEATS
    with measuring(rig) as state:
        profiling.REPEATS = repeats
        cells = list(s.profiler._todo)
        armed = [cell for cell in cells if cell.armed]
        rig.run(keep_one_busy, limit=50_000)
    safepoints.eager_modes = before[0]
    assert armed
    assert all(cell.decode and cell.chunks for cell in armed)
    assert len(armed) == sum(bool(cell.decode and cell.chunks) for cell in cells) // 2
    assert safepoints.num_checks >= before[1] + len(armed)
    assert safepoints._mode is SafepointMode.NONE
    return {"armed": len(armed), "cells": state["cells"]}


PROFILING = [measures_armed_cells_layer_by_layer, measures_beside_a_queue, measures_beside_a_chat]
