"""The weights' type follows what the processor multiplies in hardware."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from engine_adapter.host_cpu import cpu_name, matmul_dtype


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        ("flags\t\t: fpu sse2 avx2 avx512f avx512_bf16", "bfloat16"),
        ("flags\t\t: fpu avx2 avx512f amx_bf16 amx_tile", "bfloat16"),
        ("Features\t: fp asimd i8mm bf16", "bfloat16"),
        ("flags\t\t: fpu sse2 avx avx2 fma", "float32"),
        ("flags\t\t: fpu sse2 avx2 avx512f avx512bw", "float32"),
        ("model name\t: bf16", "float32"),
    ],
)
def test_hardware_decides(tmp_path: Path, line: str, dtype: str) -> None:
    place = tmp_path / "cpuinfo"
    place.write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\n{line}\n")
    assert matmul_dtype(place) == dtype


def test_no_list_of_processors(tmp_path: Path) -> None:
    assert matmul_dtype(tmp_path / "absent") == "float32"


def test_a_processor_has_a_name(tmp_path: Path) -> None:
    place = tmp_path / "cpuinfo"
    place.write_text("processor\t: 0\nmodel name\t: Some CPU: 3 GHz\n")
    assert cpu_name(place) == "Some CPU: 3 GHz"
    assert cpu_name(tmp_path / "absent") == platform.machine()
