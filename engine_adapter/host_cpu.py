"""What this host's processor computes fast; found without loading torch."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

# Dot products of bfloat16 in hardware: AVX-512 BF16 or AMX on x86, BF16 on Arm. Without them torch
# converts number by number, and a prefill takes six times as long as in float32.
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def matmul_dtype(cpuinfo: Path = CPUINFO) -> str:
    """The fastest type for weights on this host: `bfloat16` or `float32`.

    Args:
        cpuinfo: The kernel's list of processors; float32 where there is none.
    """
    flags = _first(cpuinfo, "flags", "Features").split()
    return "bfloat16" if _BFLOAT16_FLAGS & set(flags) else "float32"


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor in the kernel's words, or its architecture where the kernel has none."""
    return _first(cpuinfo, "model name") or platform.machine()


def _first(cpuinfo: Path, *names: str) -> str:
    """The first value under one of these names; empty if there is none."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() in names), "")
