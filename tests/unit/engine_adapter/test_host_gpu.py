"""What an engine with CUDA finds on its host, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_adapter.engine_process import Device, EngineSettings, engine_command
from engine_adapter.host_gpu import (
    CACHES,
    cuda_environment,
    newest_capability,
    page_tokens_of,
    pip_toolkit,
)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An environment as pip makes it for CUDA: ninja beside its Python, nvcc among its packages."""
    program(tmp_path / "venv/bin/ninja")
    program(tmp_path / "venv/lib/python3.12/site-packages/nvidia/cu13/bin/nvcc")
    return program(tmp_path / "venv/bin/python")


def test_a_host_with_a_driver_alone_compiles_with_what_pip_installed(python: Path) -> None:
    env = cuda_environment(python, {"PATH": "/nowhere", "HOME": "/home/app"})
    assert env["PATH"] == f"{python.parent}:/nowhere"
    assert env["CUDA_HOME"] == str(python.parents[1] / "lib/python3.12/site-packages/nvidia/cu13")


def test_a_toolkit_of_the_host_goes_first(python: Path, tmp_path: Path) -> None:
    nvcc = program(tmp_path / "cuda/bin/nvcc")
    assert "CUDA_HOME" not in cuda_environment(python, {"PATH": str(nvcc.parent)})
    assert "CUDA_HOME" not in cuda_environment(python, {"PATH": "/nowhere", "CUDA_HOME": "/mine"})


def test_without_any_toolkit_none_is_named(tmp_path: Path) -> None:
    python = program(tmp_path / "venv/bin/python")
    assert pip_toolkit(python) is None
    assert "CUDA_HOME" not in cuda_environment(python, {"PATH": "/nowhere"})


@pytest.mark.parametrize(
    ("environ", "base"),
    [
        ({"HOME": "/home/app"}, "/home/app/.cache"),
        ({"HOME": "/tmp", "XDG_CACHE_HOME": "/profiles/compiled"}, "/profiles/compiled"),
    ],
)
def test_every_compiler_keeps_its_work_in_the_cache(
    python: Path, environ: dict[str, str], base: str
) -> None:
    env = cuda_environment(python, environ)
    assert {name: Path(env[name]).parent for name in CACHES} == dict.fromkeys(CACHES, Path(base))


def test_what_the_operator_set_stays(python: Path) -> None:
    env = cuda_environment(python, {"HOME": "/home/app", "TRITON_CACHE_DIR": "/fast"})
    assert "TRITON_CACHE_DIR" not in env


@pytest.mark.parametrize(
    ("said", "capability", "page"),
    [
        ("9.0\n", (9, 0), None),
        ("8.0\n10.0\n", (10, 0), 16),
        ("12.1", (12, 1), 16),
        ("[N/A]\n", None, None),
        ("", None, None),
    ],
)
def test_pages_of_a_generation(
    said: str, capability: tuple[int, int] | None, page: int | None
) -> None:
    assert newest_capability(said) == capability
    assert page_tokens_of(newest_capability(said)) == page


@pytest.mark.parametrize(
    "name",
    ["CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "PYTORCH_CUDA_ALLOC_CONF", "CC", "CXX",
     "TVM_FFI_CACHE_DIR", "FLASHINFER_CUDA_ARCH_LIST", "NVIDIA_VISIBLE_DEVICES",
     "DG_JIT_CACHE_DIR"],
)  # fmt: skip
def test_what_cuda_reads_reaches_the_engine(python: Path, name: str) -> None:
    settings = EngineSettings(python, Path("/model"), 1, device=Device.CUDA)
    _, env = engine_command(settings, {"PATH": "/bin", name: "x"})
    assert env[name] == "x"


@pytest.mark.parametrize(("ranks", "slots"), [(1, "256"), (2, "256"), (4, "512"), (8, "512")])
def test_as_many_requests_as_decode_graphs(python: Path, ranks: int, slots: str) -> None:
    settings = EngineSettings(python, Path("/m"), 1, device=Device.CUDA, tensor_parallel=ranks)
    argv, _ = engine_command(settings, {})
    assert argv[argv.index("--max-running-requests") + 1] == slots
