"""Where a result was measured."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.coserve_bench.options import Options
from bench.paths import ROOT
from engine_adapter.host_cpu import cpu_name


def surroundings(options: Options) -> dict[str, Any]:
    """Machine, versions and options."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "gpu": _told(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
        if options.device == "cuda"
        else None,
        "commit": _told(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "load_average": list(os.getloadavg()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "engine": _engine_versions(options.python),
        "options": {
            name: value.name if isinstance(value, Path) else value
            for name, value in dataclasses.asdict(options).items()
        },
    }


def _told(argv: list[str]) -> str | None:
    """What a command prints; None if there is no such command or it fails."""
    if shutil.which(argv[0]) is None:
        return None
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return answer.stdout.strip() or None


_VERSIONS: dict[Path, dict[str, str]] = {}

_ASK = (
    "from importlib.metadata import version, PackageNotFoundError\n"
    "for name in ('sglang', 'torch', 'transformers', 'triton'):\n"
    "    try:\n"
    "        print(name, version(name))\n"
    "    except PackageNotFoundError:\n"
    "        pass\n"
)


def _engine_versions(python: Path) -> dict[str, str]:
    if python not in _VERSIONS:
        answer = subprocess.run(
            [str(python), "-c", _ASK], capture_output=True, text=True, check=False, timeout=60
        )
        _VERSIONS[python] = dict(
            line.split(" ", 1) for line in answer.stdout.splitlines() if " " in line
        )
    return _VERSIONS[python]
