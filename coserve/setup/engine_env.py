"""Build the engine's own environment, `.venv-engine`, beside the service's.

`COSERVE_SGLANG` names another release than the default; it has an environment of its own
(`.venv-engine-0.5.16`), and both may be there.

    venv → torch, alone, by pip → the frozen list, hashes checked → links to our packages

torch is installed by pip and without a hash: pip honours the host's own configuration, where a CPU
build may be found, and such a build has another hash than the published one. `COSERVE_TORCH_INDEX`
names another index for it. On a host with an NVIDIA driver SGLang is installed whole, with the
torch and the kernels it pins itself.

Idempotent: a stamp holds the hash of everything that decides the result.

    python3 -m coserve.setup.engine_env VENV    what a CPU needs, into an environment that is there

is how the engine's image is filled (`docker/engine.Dockerfile`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from coserve.setup import stamp
from coserve.setup.engine_link import is_for_cpu, link_packages
from coserve.setup.installer import find_uv
from coserve.setup.progress import SetupFailed, quiet, run, step
from coserve.setup.sources import listed, packages_of

TORCH = "torch==2.13.0"
INDEX_SETTING = "COSERVE_TORCH_INDEX"
SGLANG_SETTING = "COSERVE_SGLANG"
_VENV = ".venv-engine"


def engine_venv(checkout: Path) -> Path:
    """The environment of the chosen release of SGLang."""
    chosen = os.environ.get(SGLANG_SETTING)
    return venv_of(checkout, chosen) if chosen else checkout / _VENV


def venv_of(checkout: Path, sglang: str) -> Path:
    """The environment of one release of SGLang; its name tells it where it is not the default."""
    return checkout / (_VENV if sglang == default_sglang(checkout) else f"{_VENV}-{sglang}")


def engine_python(checkout: Path) -> Path:
    """The interpreter of the engine's environment."""
    return engine_venv(checkout) / "bin" / "python"


def has_cuda() -> bool:
    """Whether the host has an NVIDIA driver; `COSERVE_DEVICE=cpu` says no on any host."""
    if os.environ.get("COSERVE_DEVICE", "").lower() == "cpu":
        return False
    return shutil.which("nvidia-smi") is not None


def default_sglang(checkout: Path) -> str:
    """The release of SGLang that is installed where nobody asks for another."""
    return _sglang_in(listed(checkout, "engine-cpu.txt"))


def chosen_sglang(checkout: Path) -> str:
    """The release that `COSERVE_SGLANG` names, or the default."""
    return os.environ.get(SGLANG_SETTING) or default_sglang(checkout)


def known_sglangs(checkout: Path) -> list[str]:
    """The releases that there are lists for, which the plugin was written for."""
    lists = listed(checkout, "engine-cpu.txt").parent.glob("engine-cpu*.txt")
    return sorted({_sglang_in(one) for one in lists})


def _sglang_in(path: Path) -> str:
    lines = path.read_text().splitlines()
    return next(line for line in lines if line.startswith("sglang==")).partition("==")[2].split()[0]


def why_unknown_sglang(checkout: Path) -> str | None:
    """What is wrong with `COSERVE_SGLANG`, or None."""
    release, known = os.environ.get(SGLANG_SETTING), known_sglangs(checkout)
    if not release or release in known:
        return None
    return f"{SGLANG_SETTING} is {release!r}; give {' or '.join(known)}."


def list_of(checkout: Path, name: str) -> Path:
    """A list of the chosen release: `engine-cpu.txt`, or `engine-cpu-0.5.16.txt`.

    Raises:
        SetupFailed: There is none.
    """
    if why := why_unknown_sglang(checkout):
        raise SetupFailed(why)
    release = chosen_sglang(checkout)
    stem, ending = name.rsplit(".", 1)
    own = release == default_sglang(checkout)
    return listed(checkout, name if own else f"{stem}-{release}.{ending}")


def is_current(checkout: Path) -> bool:
    """Whether the engine's environment is there, as this version wants it.

    Raises:
        SetupFailed: There is no list of the chosen release.
    """
    wanted = recipe(checkout, cpu=not has_cuda())
    return engine_python(checkout).exists() and stamp.is_current(engine_venv(checkout), wanted)


def set_up_engine(checkout: Path) -> Path:
    """Make the engine's environment fit this version; does nothing when it already does.

    Args:
        checkout: A checkout, or the data folder of an installed package.

    Returns:
        The environment's interpreter.

    Raises:
        SetupFailed: A download or installation failed.
    """
    cpu = not has_cuda()
    venv, python = engine_venv(checkout), engine_python(checkout)
    wanted = recipe(checkout, cpu=cpu)
    if is_current(checkout):
        link_packages(python, packages_of(checkout), cpu=cpu)  # ours may have moved
        print(f"  engine environment: ready ({venv.name})", flush=True)
        return python
    (venv / stamp.NAME).unlink(missing_ok=True)
    if python.exists() and is_for_cpu(python) != cpu:
        # pip would write through the links of the CPU's stand-ins into the checkout.
        shutil.rmtree(venv)
    with step(f"engine environment {venv.name}"):
        _make_venv(checkout, venv)
    if cpu:
        install_cpu(checkout, venv)
    else:
        with step("SGLang with CUDA (several GB)", grows=venv):
            _pip(python, "-r", list_of(checkout, "engine-cuda.in"))
    with step("engine plugin"):
        link_packages(python, packages_of(checkout), cpu=cpu)
    stamp.write(venv, wanted)
    return python


def install_cpu(checkout: Path, venv: Path) -> None:
    """Install what a host without CUDA needs into an environment.

    Raises:
        SetupFailed: A download or installation failed.
    """
    python = venv / "bin" / "python"
    index = os.environ.get(INDEX_SETTING)
    with step(f"{TORCH} (a CPU build, or 4 GB where the index has none)", grows=venv):
        _pip(python, TORCH, *(["--index-url", index] if index else []))
    frozen = list_of(checkout, "engine-cpu.txt")
    with step("SGLang and what it imports", grows=venv):
        exact: list[str | Path] = ["--no-deps", "--require-hashes", "-r", frozen]
        uv = find_uv(checkout)
        if uv is None or not _uv_install(uv, venv, exact):
            _pip(python, *exact)


def _make_venv(checkout: Path, venv: Path) -> None:
    """Make it with Python's own module; with uv where the host's Python was cut down."""
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return
    uv = find_uv(checkout)
    if uv is None:
        raise SetupFailed("Python's venv module is missing (Debian: apt install python3-venv).")
    why = "The environment could not be made"
    run([uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, venv], why)


def _uv_install(uv: Path, venv: Path, args: list[str | Path]) -> bool:
    """Install with uv, three times as fast; False where only pip knows the way to an index."""
    env = {**os.environ, "VIRTUAL_ENV": str(venv), "UV_PYTHON_DOWNLOADS": "never"}
    argv = [uv, "pip", "install", *quiet(), *args]
    done = subprocess.run([str(part) for part in argv], env=env, check=False)
    return done.returncode == 0


def _pip(python: Path, *args: str | Path) -> None:
    run(
        [python, "-m", "pip", "install", *quiet(), "--disable-pip-version-check", *args],
        "The engine's packages could not be installed",
    )


def recipe(checkout: Path, *, cpu: bool) -> str:
    """A hash of everything that decides what is installed.

    Raises:
        SetupFailed: There is no list of the chosen release.
    """
    name = "engine-cpu.txt" if cpu else "engine-cuda.in"
    packages = list_of(checkout, name).read_bytes()
    python = ".".join(str(part) for part in sys.version_info[:3])
    index = os.environ.get(INDEX_SETTING, "") if cpu else ""
    return stamp.digest(f"{TORCH} {python} {index} {name} ".encode(), packages)


if __name__ == "__main__":
    install_cpu(Path(__file__).resolve().parents[2], Path(sys.argv[1]))
