"""Run a script in the engine's venv and read what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
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


def run_script(name: str, *args: object, timeout_s: float = LIMIT_S - 20.0) -> dict[str, Any]:
    """Run ``tests/engine/NAME`` and return the object of its last ``RESULTS`` line."""
    # Scripts end with their schedulers still running, so what they leave is removed here.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [str(ENGINE_PYTHON), str(Path(__file__).with_name(name)), *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **ENGINE_ENV, "TMPDIR": folder},
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, f"{name} ended with {done.returncode}: {done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULTS "))
    return found
