"""The real Triton for the kernels' tests, in a folder of its own.

A CPU engine runs with SGLang's stand-in for Triton, and must: the real one would change what SGLang
does. So it lies in `.tools/triton`, where only the kernels' tests look. On a host with CUDA the
engine's environment has it already.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from coserve.setup.engine_env import engine_python, has_cuda
from coserve.setup.progress import quiet, run, step

_STAMP = "coserve-stamp"


def triton_dir(checkout: Path) -> Path:
    """Where the tests find Triton."""
    return checkout / ".tools" / "triton"


def set_up_triton(checkout: Path) -> Path | None:
    """Install Triton beside the engine's environment; does nothing when it is there.

    Returns:
        The folder, or None where the engine's environment has its own or there is none.

    Raises:
        SetupFailed: The package could not be had.
    """
    python = engine_python(checkout)
    if has_cuda() or not python.exists():
        return None
    frozen, target = checkout / "requirements" / "kernels-test.txt", triton_dir(checkout)
    tag = "import sys; print(sys.implementation.cache_tag)"
    done = subprocess.run([python, "-c", tag], capture_output=True, text=True, check=True)
    wanted = hashlib.sha256(done.stdout.encode() + frozen.read_bytes()).hexdigest() + "\n"
    stamp = target / _STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        print(
            f"  triton for the kernels' tests: ready ({target.relative_to(checkout)})", flush=True
        )
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with step("triton for the kernels' tests", grows=target):
        run(
            [python, "-m", "pip", "install", *quiet(), "--disable-pip-version-check", "--no-deps",
             "--no-compile", "--require-hashes", "--target", target, "-r", frozen],
            "Triton could not be installed",
        )  # fmt: skip
    stamp.write_text(wanted)
    return target
