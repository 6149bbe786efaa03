"""The Triton kernels: run through Triton's interpreter on a CPU, compiled on CUDA.

Where there is no CUDA they are compiled for it too, as far as a host without a GPU can: down to
machine code. Timings of kernels are taken on a GPU only (``bench/gpu``).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coserve.setup.engine_env import has_cuda
from coserve.setup.tools import triton_dir
from tests.engine.engine_scripts import ENGINE_PYTHON, ROOT


def run_with_triton(script: str, *args: object, env: dict[str, str]) -> dict[str, Any]:
    path = [] if has_cuda() else [str(triton_dir(ROOT))]
    done = subprocess.run(
        [ENGINE_PYTHON, Path(__file__).with_name(script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", **env},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, f"{script} ended with {done.returncode}: {done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULTS "))
    return found


def test_kernels_move_every_byte_where_the_oracle_does() -> None:
    found = run_with_triton("kernel_cases.py", "cpu", 60, env={"TRITON_INTERPRET": "1"})
    assert found["cases"] == 65
    assert found["handovers"] > 100, "staging buffers passed between streams"
    covered = found["covered"]
    assert set(covered["dtype"]) == {"float32", "bfloat16", "float16", "float8_e4m3fn"}
    assert {"1", "2", "5", "16"} == set(covered["page_tokens"])
    assert {"0", "1", "16", "17", "64"} <= set(covered["num_tokens"])
    assert {"1", "2"} <= set(covered["window_pages"]), "transfers larger than the staging buffers"


@pytest.mark.parametrize("capability", [80, pytest.param(90, marks=pytest.mark.thorough)])
def test_kernels_compile_to_machine_code(capability: int, tmp_path: Path) -> None:
    env = {"TRITON_CACHE_DIR": str(tmp_path)}
    found = run_with_triton("kernel_compile.py", capability, env=env)
    assert len(found) == 4
    for made in found.values():
        assert made["variants"] == 1, "no second one is compiled while requests are served"
        assert made["target"].startswith(f"sm_{capability}")
        assert made["machine_code_bytes"] > 1000
