"""Run a script in the engine's venv and read what it reports.

Scripts run in forks of one process that has imported SGLang (`warm_process.py`).
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from coserve.setup.engine_env import engine_python
from tests.fixtures import processor

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PYTHON = engine_python(ROOT)
LIMIT_S = 900.0
"""For a whole script, on a machine with better things to do."""
# Set before torch and SGLang are imported. The three checks are SGLang's own: they end the
# scheduler at the first KV slot that is lost, freed twice or used after it was freed.
ENGINE_ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
    "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1",
    "COSERVE_POLICY": "conserve_v2",
}


@cache
def _warm() -> subprocess.Popen[str]:
    """The process that forks: one in each process of the test run."""
    process = subprocess.Popen(
        [str(ENGINE_PYTHON), str(Path(__file__).with_name("warm_process.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENGINE_ENV},
    )
    atexit.register(process.communicate)  # the end of its input is its end
    return process


def ordered(order: Mapping[str, Any]) -> dict[str, Any]:
    """What the process that has imported SGLang answers to an order (`warm_process.py`)."""
    warm = _warm()
    assert warm.stdin is not None
    assert warm.stdout is not None
    warm.stdin.write(json.dumps(order) + "\n")
    warm.stdin.flush()
    line = warm.stdout.readline()
    assert line, "the process that has imported SGLang has ended (above: why)"
    told: dict[str, Any] = json.loads(line)
    processor.count(told.get("cpu_s", 0.0))
    return told


def run_forked(
    script: Path,
    *args: object,
    limit_s: float = LIMIT_S - 20.0,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script where SGLang is imported already; `env` is set before it begins."""
    # Scripts end with their schedulers still running, so what they leave is removed here.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        argv = [str(script), *map(str, args)]
        order = {
            "argv": argv,
            "env": {"TMPDIR": folder, **(env or {})},
            "stdout": str(stdout),
            "stderr": str(stderr),
            "limit_s": limit_s,
        }
        told = ordered(order)
        return subprocess.CompletedProcess(argv, told["code"], _text(stdout), _text(stderr))


def run_code(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The same with a few lines that are no file."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        return run_forked(Path(script.name), env=env)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def run_script(name: str, *args: object) -> dict[str, Any]:
    """Run ``tests/engine/NAME`` and return the object of its last ``RESULTS`` line."""
    done = run_forked(Path(__file__).with_name(name), *args)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, f"{name} ended with {done.returncode}: {done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULTS "))
    return found
