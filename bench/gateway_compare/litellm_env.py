"""LiteLLM's proxy in an environment of its own, installed from a lock with hashes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from coserve.setup.installer import get_uv
from coserve.setup.service_env import installer_env

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "bench-litellm.txt"
VENV = ROOT / ".venv-bench-litellm"
_STAMP = "coserve-stamp"


def litellm_bin() -> Path:
    """Where the environment's programs are."""
    return VENV / "bin"


def install() -> None:
    """Make the environment fit the lock; does nothing when it already does."""
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    stamp = VENV / _STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"  installing LiteLLM's proxy into {VENV.name} (700 MB)", flush=True)
    uv, env = get_uv(ROOT), installer_env()
    argv: list[str | Path] = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, VENV]
    subprocess.run(argv, env=env, check=True)
    argv = [
        uv, "pip", "sync", "--quiet", "--compile-bytecode", "--python", VENV / "bin" / "python",
        "--require-hashes", LOCK,
    ]  # fmt: skip
    subprocess.run(argv, env=env, check=True)
    stamp.write_text(wanted)


def version() -> str:
    """The installed version."""
    code = "from importlib.metadata import version; print(version('litellm'))"
    done = subprocess.run(
        [VENV / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
