"""What is installed is not installed again: a hash in its folder, written last, says from what."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "coserve-stamp"


def digest(*parts: bytes) -> str:
    """The hash of everything that decides what is installed."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def is_current(folder: Path, wanted: str) -> bool:
    """Whether a folder was filled to its end from what has this digest."""
    stamp = folder / NAME
    return stamp.is_file() and stamp.read_text().strip() == wanted


def write(folder: Path, wanted: str) -> None:
    """Note that a folder was filled to its end."""
    (folder / NAME).write_text(wanted + "\n")


@contextmanager
def installing(folder: Path, wanted: str, needed: Path | None = None) -> Iterator[bool]:
    """Whether the block has to fill a folder, which is empty then, and stamped when it ends.

    Args:
        folder: What is filled.
        wanted: The digest of what decides its contents.
        needed: A file without which it is filled in any case.
    """
    if is_current(folder, wanted) and (needed is None or needed.exists()):
        yield False
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield True
    write(folder, wanted)
