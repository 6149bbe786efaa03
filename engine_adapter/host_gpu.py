"""What an engine with CUDA needs of its host: a compiler, and folders for what is compiled.

SGLang, flashinfer, Triton and torch compile kernels for the GPU they find. On a host with a driver
alone, the compiler is the one that pip installed into the engine's environment.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

BLACKWELL: Final = (10, 0)
"""Compute capability from which SGLang takes pages of 64 tokens; our KV copies take 16."""

BLACKWELL_PAGE_TOKENS: Final = 16
OLDEST_DRIVER: Final = 580
"""The first driver that runs CUDA 13, which the engine's torch is built for."""

CACHES: Final = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "SGLANG_DG_CACHE_DIR": "deep_gemm",
    "CUDA_CACHE_PATH": "driver",
}
"""Settings that say where each compiler keeps its work, and the folder of each in the cache."""

_LIMIT_S: Final = 20.0


def cuda_environment(python: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What to add to an engine's environment so that its compilers find each other.

    Args:
        python: Interpreter of the engine's environment: `ninja` lies beside it.
        environ: Of the caller. What is set there stays.

    Returns:
        PATH with the environment's own programs first, CUDA_HOME where no toolkit is installed,
        and a folder for each compiler below one cache: XDG_CACHE_HOME, or `.cache` of HOME.
    """
    programs = python.parent
    path = environ.get("PATH", "")
    made = {"PATH": f"{programs}:{path}" if path else str(programs)}
    if "CUDA_HOME" not in environ and shutil.which("nvcc", path=path) is None:
        toolkit = pip_toolkit(python)
        if toolkit is not None:
            made["CUDA_HOME"] = str(toolkit)
    base = cache_folder(environ)
    if base is not None:
        made |= {name: str(base / folder) for name, folder in CACHES.items() if name not in environ}
    return made


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Where compiled kernels are kept; none where the environment names no home either."""
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"])
    return Path(environ["HOME"]) / ".cache" if environ.get("HOME") else None


def pip_toolkit(python: Path) -> Path | None:
    """The folder of the CUDA toolkit that pip installed, if there is one with a compiler."""
    found = sorted(python.parents[1].glob("lib/python*/site-packages/nvidia/cu*/bin/nvcc"))
    return found[-1].parents[1] if found else None


@lru_cache(maxsize=1)
def compute_capability() -> tuple[int, int] | None:
    """Of the host's newest GPU, as its driver says; none without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return newest_capability(done.stdout)


def newest_capability(said: str) -> tuple[int, int] | None:
    """The highest of `nvidia-smi`'s lines, such as `9.0`; lines of another form are left out."""
    found = []
    for line in said.splitlines():
        major, dot, minor = line.strip().partition(".")
        if dot and major.isdigit() and minor.isdigit():
            found.append((int(major), int(minor)))
    return max(found, default=None)


def page_tokens_of(capability: tuple[int, int] | None) -> int | None:
    """The page size to ask for where SGLang's own would be refused; none leaves it to SGLang."""
    if capability is not None and capability >= BLACKWELL:
        return BLACKWELL_PAGE_TOKENS
    return None
