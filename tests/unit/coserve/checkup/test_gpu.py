"""Whether the engine's torch gets on with the GPU, by what a Python says that stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coserve.checkup.gpu import compilers, cuda, driver


def python_that(tmp_path: Path, does: str) -> Path:
    made = tmp_path / "python"
    made.write_text(f"#!/bin/sh\n{does}\n")
    made.chmod(0o755)
    return made


@pytest.mark.parametrize(
    ("does", "state", "found", "fix"),
    [
        ("echo '13.0 2'", "good", "torch has CUDA 13.0 and finds 2 device(s)", ""),
        ("echo '13.0 0'", "bad", "torch wants CUDA 13.0 and finds no device", "driver"),
        ("echo 'No module named torch' >&2; exit 1", "bad", "No module named torch", "install"),
    ],
)
def test_what_torch_says(tmp_path: Path, does: str, state: str, found: str, fix: str) -> None:
    said = cuda(python_that(tmp_path, does))
    assert said.state == state
    assert found in said.found
    assert fix in said.fix


def test_without_the_packages_nothing_is_known(tmp_path: Path) -> None:
    assert cuda(tmp_path / "python").state == "unknown"


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("NVIDIA H100 80GB HBM3, 580.95.05, 81559 MiB", "good"),
        ("NVIDIA H100 80GB HBM3, 570.86.10, 81559 MiB", "bad"),
        ("NVIDIA A100, 590.1, 40960 MiB; NVIDIA A100, 535.2, 40960 MiB", "bad"),
        ("a card that says little", "good"),
    ],
)
def test_a_driver_too_old_for_cuda_13(said: str, state: str) -> None:
    found = driver(said)
    assert (found.state, found.found) == (state, said)
    assert ("580" in found.fix) == (state == "bad")


def test_compilers_that_are_missing_are_named_with_their_remedy(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    nothing = compilers(venv / "bin/python", {"PATH": str(tmp_path / "empty")})
    assert nothing.state == "bad"
    for word in ("ninja", "C++", "nvcc"):
        assert word in nothing.found
    toolkit = venv / "lib/python3.12/site-packages/nvidia/cu13/bin"
    toolkit.mkdir(parents=True)
    for place, name in ((venv / "bin", "ninja"), (toolkit, "nvcc"), (venv / "bin", "c++")):
        python_that(place, "true").rename(place / name)
    found = compilers(venv / "bin/python", {"PATH": ""})
    assert not {"ninja", "C++", "nvcc"} & set(found.found.replace("(", " ").split())
