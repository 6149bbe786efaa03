"""Build the service's environment, `.venv`, from a lock with hashes, with our package editable.

Idempotent: a stamp in the environment holds the hash of everything that decides the result. The
tests' lock (dev) is a superset of the service's, so an environment made for tests also serves.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from coserve.setup.installer import get_uv
from coserve.setup.progress import run, step

_STAMP = "coserve-stamp.json"
_LOCKS = {"service": "service.txt", "dev": "dev.txt"}


def service_python(checkout: Path) -> Path:
    """The interpreter of the service's environment."""
    return checkout / ".venv" / "bin" / "python"


def _wanted(checkout: Path) -> dict[str, str]:
    """One hash per lock, and one of what an editable install depends on."""
    package = (checkout / "pyproject.toml").read_bytes() + str(checkout.resolve()).encode()
    hashes = {"package": hashlib.sha256(package).hexdigest()}
    for name, lock in _LOCKS.items():
        listed = (checkout / "requirements" / lock).read_bytes()
        hashes[name] = hashlib.sha256(listed).hexdigest()
    return hashes


def _installed(venv: Path) -> dict[str, str]:
    try:
        read = json.loads((venv / _STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else {}


def _runs(python: Path) -> bool:
    """Whether the environment's interpreter starts and is one we support."""
    code = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"
    try:
        return subprocess.run([python, "-c", code], check=False).returncode == 0
    except OSError:
        return False


def installer_env() -> dict[str, str]:
    """Environment for uv: never another Python; the index that pip's own settings name, if any."""
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    if not any(name in env for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX")):
        index = env.get("PIP_INDEX_URL") or _pip_index()
        if index:
            env["UV_DEFAULT_INDEX"] = index
    if "SSL_CERT_FILE" not in env and env.get("PIP_CERT"):
        env["SSL_CERT_FILE"] = env["PIP_CERT"]
    return env


def _pip_index() -> str | None:
    argv = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def set_up_service(checkout: Path, *, dev: bool) -> Path:
    """Make `.venv` fit this checkout; does nothing when it already does.

    Args:
        checkout: The root of this repository.
        dev: With the tools of tests and checks.

    Returns:
        The environment's interpreter.

    Raises:
        SetupFailed: A download or installation failed.
    """
    venv, python = checkout / ".venv", service_python(checkout)
    wanted, installed = _wanted(checkout), _installed(venv)
    names = ("dev",) if dev else ("service", "dev")
    whole = any(wanted[name] == installed.get(name) for name in names) and _runs(python)
    if whole and wanted["package"] == installed.get("package"):
        print(f"  service environment: ready ({venv.name})", flush=True)
        _link_uv(venv, checkout)
        return python
    env = installer_env()
    uv = get_uv(checkout)
    (venv / _STAMP).unlink(missing_ok=True)
    if not _runs(python):
        with step(f"service environment {venv.name}"):
            run(
                [uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv],
                "The environment could not be made",
                env=env,
            )
    if not whole:
        # Tools of the tests stay when only the service is asked for.
        name = "dev" if dev or "dev" in installed else "service"
        with step(f"packages of the service ({name})", grows=venv):
            _sync(uv, python, checkout / "requirements" / _LOCKS[name], env)
        installed = {name: wanted[name]}
    with step("coserve itself (editable)"):
        argv: list[str | Path] = [
            uv, "pip", "install", "--quiet", "--python", python, "--no-deps",
            "--no-build-isolation", "--config-settings", "editable_mode=compat", "-e", checkout,
        ]  # fmt: skip
        run(argv, "The package could not be installed", env=env)
    _link_uv(venv, checkout)
    kept = {name: installed[name] for name in _LOCKS if name in installed}
    (venv / _STAMP).write_text(json.dumps({**kept, "package": wanted["package"]}) + "\n")
    return python


def _link_uv(venv: Path, checkout: Path) -> None:
    """`make lock` and the engine's set-up find the installer in the environment."""
    link = venv / "bin" / "uv"
    if not link.exists():
        link.unlink(missing_ok=True)  # it may point to one that is gone
        link.symlink_to(get_uv(checkout).resolve())


def _sync(uv: Path, python: Path, lock: Path, env: dict[str, str]) -> None:
    """Install exactly the lock: by uv, or by pip, which knows more ways to an index."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    exactly: list[str | Path] = ["--require-hashes", lock]
    argv = [uv, "pip", "sync", *quiet, "--compile-bytecode", "--python", python, *exactly]
    if subprocess.run(argv, env=env, check=False).returncode == 0:
        return
    print("  uv could not: trying pip, which reads this host's pip settings", flush=True)
    run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--require-hashes",
         "-r", lock],
        "The service's packages could not be installed by uv or by pip",
    )  # fmt: skip
