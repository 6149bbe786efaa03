"""The run on a GPU host, rehearsed: what it imports is there, and its stages hold on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.engine.engine_scripts import ENGINE_PYTHON, ROOT
from tests.engine.test_kernels import run_with_triton


def test_what_a_hopper_card_makes_sglang_and_us_import_is_on_the_host_or_in_the_bundle() -> None:
    found = run_with_triton("gpu_imports.py", env={})
    assert not found["failed"], found
    assert "tests.engine.scheduler_rig" in found["imported"]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_stages_run_on_a_cpu_and_leave_their_results_one_by_one(tmp_path: Path) -> None:
    archive = tmp_path / "results.tar.xz"
    subprocess.run(
        [
            *(sys.executable, "-m", "bench.gpu.host_run", "--out", tmp_path / "out"),
            *("--device", "cpu", "--geometry", "tiny", "--engine-python", ENGINE_PYTHON),
            *("--stages", "imports,run_ahead,mechanisms,engine", "--archive", archive),
            *("--parts", "stops, overlap"),
        ],
        cwd=ROOT,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=560,
    )
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        told = packed.extractfile("stages.json")
        assert told is not None
        stages = json.load(told)
    assert {"run_ahead.json", "mechanisms.json", "mechanisms.log"} <= set(names)
    assert stages["mechanisms"]["results"] == {"parts": 1, "failed": []}
    assert {"one_engine/results.json", "one_engine/start.json"} <= set(names)
