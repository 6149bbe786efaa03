"""The GPU: its driver, what kernels are compiled with, and whether torch finds it."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from coserve.checkup.finding import Finding
from coserve.setup.engine_env import has_cuda
from engine_adapter.host_gpu import OLDEST_DRIVER, cuda_environment

_NVIDIA = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
_NVIDIA_LIMIT_S = 20.0
_ASK_TORCH: Final = (
    "import torch; print(torch.version.cuda,"
    " torch.cuda.device_count() if torch.cuda.is_available() else 0)"
)
_TORCH_LIMIT_S: Final = 60.0


def gpu() -> Finding:
    """What `nvidia-smi` says."""
    if not has_cuda():
        return Finding("GPU", "good", "none, so the engine computes on the CPU")
    try:
        done = subprocess.run(
            _NVIDIA, capture_output=True, text=True, timeout=_NVIDIA_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("GPU", "bad", f"nvidia-smi: {error}", "Repair the NVIDIA driver.")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it failed"]
        return Finding("GPU", "bad", f"nvidia-smi: {said[0]}", "Repair the NVIDIA driver.")
    return driver("; ".join(done.stdout.strip().splitlines()))


def driver(said: str) -> Finding:
    """The GPUs as `nvidia-smi` names them, and whether their driver is new enough.

    Args:
        said: `name, driver version, memory` of each, with semicolons between.
    """
    versions = [fields[1].strip() for one in said.split(";") if len(fields := one.split(",")) > 1]
    old = [one for one in versions if one.split(".")[0].isdigit()
           and int(one.split(".")[0]) < OLDEST_DRIVER]  # fmt: skip
    if old:
        fix = f"Install driver {OLDEST_DRIVER} or newer: the engine is built for CUDA 13."
        return Finding("GPU", "bad", said, fix)
    return Finding("GPU", "good", said)


def compilers(python: Path, environ: Mapping[str, str]) -> Finding:
    """What an engine on a GPU compiles its kernels with, where it would look for it."""
    env = {**environ, **cuda_environment(python, environ)}
    path, toolkit = env["PATH"], env.get("CUDA_HOME")
    missing = [
        words
        for words, there in (
            ("ninja (coserve engine install)", shutil.which("ninja", path=path)),
            (
                "a C++ compiler (Debian: apt install g++)",
                shutil.which(env.get("CXX", "c++"), path=path),
            ),
            (
                "nvcc (a CUDA 13 toolkit, or coserve engine install)",
                (toolkit and Path(toolkit, "bin", "nvcc").exists())
                or shutil.which("nvcc", path=path),
            ),
            (
                "Python's headers (Debian: apt install python3-dev)",
                Path(sysconfig.get_paths()["include"], "Python.h").exists(),
            ),
        )
        if not there
    ]
    if missing:
        fix = "Install them: SGLang compiles kernels when an engine starts."
        return Finding("compilers", "bad", f"missing: {', '.join(missing)}", fix)
    return Finding("compilers", "good", f"found; CUDA toolkit: {toolkit or 'on the PATH'}")


def cuda(python: Path) -> Finding:
    """Whether torch of the engine's packages can use the GPU through this driver."""
    if not python.exists():
        return Finding("CUDA", "unknown", "the engine's packages are not installed")
    try:
        done = subprocess.run(
            [python, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=_TORCH_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("CUDA", "bad", f"torch: {type(error).__name__}", "coserve engine install")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it failed"]
        return Finding("CUDA", "bad", f"torch: {said[-1]}", "coserve engine install")
    needs, _, devices = done.stdout.strip().partition(" ")
    if devices == "0":
        fix = f"Install an NVIDIA driver that serves CUDA {needs}."
        return Finding("CUDA", "bad", f"torch wants CUDA {needs} and finds no device", fix)
    return Finding("CUDA", "good", f"torch has CUDA {needs} and finds {devices} device(s)")
