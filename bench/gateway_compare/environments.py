"""Other gateways in environments of their own, installed from locks with hashes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.paths import ROOT
from coserve.setup.installer import get_uv
from coserve.setup.service_env import installer_env

LITELLM: Final = "litellm"
ROUTERS: Final = "routers"
NAMES: Final = {
    LITELLM: "LiteLLM's proxy (700 MB)",
    ROUTERS: "the routers of SGLang and vLLM",
}
_STAMP: Final = "coserve-stamp"


def programs(name: str) -> Path:
    """Where an environment's programs are."""
    return ROOT / f".venv-bench-{name}" / "bin"


def install(name: str) -> None:
    """Make the environment fit its lock; does nothing when it already does."""
    lock, venv = ROOT / "requirements" / f"bench-{name}.txt", programs(name).parent
    wanted = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    stamp = venv / _STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"  installing {NAMES[name]} into {venv.name}", flush=True)
    uv, env = get_uv(ROOT), installer_env()
    argv: list[str | Path] = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv]
    subprocess.run(argv, env=env, check=True)
    argv = [
        uv, "pip", "sync", "--quiet", "--compile-bytecode", "--python", venv / "bin" / "python",
        "--require-hashes", lock,
    ]  # fmt: skip
    subprocess.run(argv, env=env, check=True)
    stamp.write_text(wanted)


def version(name: str, package: str) -> str:
    """The installed version of a package."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run(
        [programs(name) / "python", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
