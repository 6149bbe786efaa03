"""Where a run was made: the machine of its clients, and what the service says of itself."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine_adapter.host_cpu import cpu_name


def machine() -> dict[str, Any]:
    """Processor, memory, GPUs and load of this host."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "gpus": _gpus(),
        "load_average": [round(one, 2) for one in os.getloadavg()],
        "platform": platform.platform(),
    }


def versions(python: Path | None) -> dict[str, str]:
    """coserve's, this Python's, and what an engine's environment on this host has.

    Args:
        python: Interpreter of that environment; None where there is none.
    """
    found = {"coserve": version("coserve"), "python": platform.python_version()}
    if python is None or not python.exists():
        return found
    ask = (
        "from importlib.metadata import version as v, distributions as d\n"
        "have = {one.name for one in d()}\n"
        "print(*(f'{n} {v(n)}' for n in ('sglang', 'torch') if n in have), sep='\\n')"
    )
    told = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, check=False, timeout=60
    )
    return found | dict(line.split(" ", 1) for line in told.stdout.splitlines() if " " in line)


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    argv = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    told = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return told.stdout.strip().splitlines() if told.returncode == 0 else []
