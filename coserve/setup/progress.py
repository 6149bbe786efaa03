"""What a set-up step says: one line with its name, its seconds and the bytes it added."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class SetupFailed(SystemExit):
    """A step cannot go on; the message is one sentence that says what to do."""


@contextmanager
def step(name: str, grows: Path | None = None) -> Iterator[None]:
    """Print `name`, then how long the body took and how much `grows` grew.

    Args:
        name: What is done, in a few words.
        grows: Folder whose growth is worth telling.
    """
    print(f"  {name} ...", flush=True)
    before_bytes = folder_bytes(grows) if grows else 0
    started_at = time.monotonic()
    yield
    said = f"  {name}: {time.monotonic() - started_at:.1f} s"
    if grows:
        said += f", {(folder_bytes(grows) - before_bytes) / 1e6:,.0f} MB"
    print(said, flush=True)


def quiet() -> list[str]:
    """The installers' flag for silence; without it, at a terminal, they show their progress."""
    return [] if sys.stdout.isatty() else ["--quiet"]


def folder_bytes(folder: Path) -> int:
    """Bytes of the files under `folder`; 0 if it is not there."""
    if not folder.exists():
        return 0
    return sum(
        file.lstat().st_size for file in folder.rglob("*") if file.is_file() or file.is_symlink()
    )


def run(
    argv: Sequence[str | Path],
    why: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a command and show what it prints.

    Raises:
        SetupFailed: It failed; `why` begins the sentence.
    """
    done = subprocess.run([str(part) for part in argv], env=env, cwd=cwd, check=False)
    if done.returncode != 0:
        raise SetupFailed(f"{why} (exit status {done.returncode}); see the lines above.")
