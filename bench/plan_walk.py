"""The way of one step through our code: which files, and how many calls lead from file to file.

    .venv-engine/bin/python bench/plan_walk.py

Runs in the engine's environment, with SGLang's real scheduler in this process. Steps are traced
from one call of ``get_next_batch_to_run`` to the next, in the scheduler's thread: plan, launch and
the result of the step before. 8 online and 8 offline requests decode while 32 offline ones wait.
Frames of SGLang between two of ours do not count; a call back into the file that called is none.
Targets: at most 12 files and 120 calls from file to file.

Quoted in docs/runtime.md.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.engine.engine_scripts import ENGINE_ENV

os.environ |= {**ENGINE_ENV, "COSERVE_TTFT_MS": "200000", "COSERVE_TBT_MS": "100000"}

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from tests.engine.scheduler_rig import Rig, prompt

OURS = f"{Path(__file__).resolve().parents[1]}/engine_adapter/"
EMULATED = "cpu_compat/"
"""What stands in for a GPU's libraries on a CPU is no part of a step."""
NUM_ONLINE, NUM_OFFLINE, NUM_WAITING = 8, 8, 32
FIRST, LAST = 40, 60
K = Coefficients(4.6e-4, 0.0, 1.2e-5, 1.3e-7, 0.0, 0.07)


def _file(frame: FrameType | None) -> str | None:
    """The nearest file of ours on the stack."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(OURS) and EMULATED not in path:
            return path.removeprefix(OURS)
        frame = frame.f_back
    return None


class Walk:
    """What a profiler saw of one step."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(OURS) or EMULATED in path:
            return
        name = path.removeprefix(OURS)
        self.files.add(name)
        above = _file(frame.f_back)
        if above is not None and above != name:
            self.calls[above, name] += 1


def main() -> None:
    """Print the median step."""
    rig = Rig(overlap=True, slots=NUM_ONLINE + NUM_OFFLINE)
    rig.scheduler.planner.use_model(PolynomialModel(K, K, K))
    walks: list[Walk] = []

    def script(rig: Rig) -> None:
        sys.setprofile(None)
        if rig.step == 2:
            for i in range(NUM_ONLINE):
                rig.submit(f"on-{i}", prompt(i, 24), 100, priority=0)
        if rig.step >= LAST:
            walks.sort(key=lambda walk: walk.calls.total())
            show(walks[len(walks) // 2])
            os._exit(0)  # tokens are still due
        if rig.step >= FIRST:
            walks.append(Walk())
            sys.setprofile(walks[-1])

    for i in range(NUM_OFFLINE + NUM_WAITING):
        rig.submit(f"off-{i}", prompt(1000 + i, 24), 100, priority=-10)
    rig.run(script)


def show(walk: Walk) -> None:
    """The files, and the calls between them."""
    for (above, name), num in walk.calls.most_common():
        print(f"{num:5}  {above} -> {name}")
    print(f"{len(walk.files)} files: {', '.join(sorted(walk.files))}")
    print(f"{walk.calls.total()} calls from file to file", flush=True)


if __name__ == "__main__":
    main()
