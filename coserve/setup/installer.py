"""Get uv, the installer: PATH → .tools → a venv with pip → pip --target → a plain error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from coserve.setup.progress import SetupFailed, step
from coserve.setup.sources import listed

OLDEST_UV = (0, 5)


def _works(uv: Path) -> bool:
    try:
        done = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
        words = done.stdout.split()
        return done.returncode == 0 and _version(words[1]) >= OLDEST_UV
    except (OSError, IndexError):
        return False


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _quietly(*argv: str | Path) -> str | None:
    """Run a command; None when it succeeded, else its last line."""
    done = subprocess.run(
        [str(part) for part in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    return (done.stdout.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def find_uv(checkout: Path) -> Path | None:
    """A uv that is here already, newest ways first."""
    on_path = shutil.which("uv")
    candidates = [Path(on_path)] if on_path else []
    candidates.append(checkout / ".tools" / "bin" / "uv")
    return next((found for found in candidates if _works(found)), None)


def get_uv(checkout: Path) -> Path:
    """The path of a working uv, installed into `.tools` if need be. Raises SetupFailed."""
    found = find_uv(checkout)
    if found is not None:
        return found
    tools = checkout / ".tools"
    frozen = listed(checkout, "uv.txt")
    link = tools / "bin" / "uv"
    link.parent.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    with step("uv, the installer", grows=tools):
        venv, target = tools / "venv", tools / "packages"
        pip: tuple[str, ...] = ("-m", "pip", "install", "--require-hashes")
        attempts: list[tuple[Path, list[list[str | Path]]]] = [
            (
                venv / "bin" / "uv",
                [
                    [sys.executable, "-m", "venv", venv],
                    [venv / "bin" / "python", *pip, "-r", frozen],
                ],
            ),
            (
                target / "bin" / "uv",
                [[sys.executable, *pip, "--upgrade", "--target", target, "-r", frozen]],
            ),
        ]
        for made, commands in attempts:
            for argv in commands:
                failed = _quietly(*argv)
                if failed is not None:
                    failures.append(failed)
                    break
            else:
                if _works(made):
                    link.unlink(missing_ok=True)
                    link.symlink_to(os.path.relpath(made, link.parent))
                    return link
    raise SetupFailed(
        "uv could not be installed: install uv, or Python's venv and pip (Debian: python3-venv), "
        f"then run this again. What was tried said: {' | '.join(failures)}"
    )
