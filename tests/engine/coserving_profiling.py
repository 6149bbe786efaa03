"""The profile is measured in the background although the queue of offline rows never ends."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from engine_adapter.sglang_plugin import profiler as profiling
from engine_adapter.sglang_plugin.planner import Planner
from engine_adapter.sglang_plugin.profiler import Profiler
from engine_adapter.sglang_plugin.runtime_parts import model_before_profile
from tests.engine.scenario_steps import NEW, flush, undisturbed
from tests.engine.scheduler_rig import Rig, prompt

QUEUED = 12


def length(i: int) -> int:
    """Rows end one by one, so that slots never are free together by themselves."""
    return NEW // 2 + 5 * i % (NEW // 2) + 1


def measures_beside_a_queue(rig: Rig) -> dict[str, Any]:
    """Cells need all slots and half the pool; rows keep both, and a prefix of every prompt too.

    The outputs of the rows between which cells ran are what they are without them.
    """
    s = rig.scheduler
    jobs = {f"q{i}": (prompt(200 + i, 60 + 7 * i), -10) for i in range(QUEUED)}
    expected = undisturbed(rig, jobs)
    before = s.profiler, s.planner, s.snapshots.slo
    with tempfile.TemporaryDirectory() as folder:
        settings = dataclasses.replace(s.coserve_settings, profile_dir=Path(folder))
        s.profiler = Profiler(s, settings)
        s.planner = Planner(settings, s.counters, model_before_profile(), measuring=True)
        assert s.planner.policy_name == "sarathi_p"
        asked: list[int] = []
        names: list[str] = []

        def keep_the_queue_full(rig: Rig) -> None:
            if s.profiler.wants_room and not asked:
                asked.append(s.profiler.progress()["cells_done"])
            while s.profiler.is_measuring and len(s.waiting_queue) < QUEUED:
                names.append(f"more{len(names)}")
                ids, priority = jobs[f"q{len(names) % QUEUED}"]
                rig.submit(names[-1], ids, length(len(names)), priority=priority)

        profiling.PATIENCE_S, patience_s = 0.5, profiling.PATIENCE_S
        rig.run(keep_the_queue_full, limit=50_000)
        profiling.PATIENCE_S = patience_s
        state, policy = s.profiler.progress(), s.planner.policy_name
        stored = [path.name for path in Path(folder).iterdir()]
    s.profiler, s.planner, s.snapshots.slo = before
    flush(rig)
    assert (state["state"], policy) == ("ready", "conserve_v2"), (state, policy)
    assert asked, "the rows were never in the way"
    assert 0 < asked[0] < state["cells"], asked
    assert len(stored) == 1, stored
    for i, name in enumerate(names, start=1):
        assert rig.output(name) == expected[f"q{i % QUEUED}"][: length(i)], name
    return {"rows": len(names), "cells": state["cells"], "found_room": asked[0]}


PROFILING = [measures_beside_a_queue]
