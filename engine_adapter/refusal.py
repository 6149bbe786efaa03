"""What an engine says when it cannot start: one sentence, its last line, one exit status.

Standard library only: the engine's process writes it, the supervisor reads it.
"""

from __future__ import annotations

from pathlib import Path

EXIT_REFUSED = 79
PREFIX = "coserve: the engine cannot start: "
_TAIL_BYTES = 65536


def sentence(reason: str) -> str:
    """The last line of an engine that cannot start."""
    return PREFIX + " ".join(reason.split())


def reason_in(log: Path) -> str:
    """Why the engine that wrote this log could not start; empty if it does not say."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    last = next((line for line in reversed(lines) if line.startswith(PREFIX)), "")
    return last.removeprefix(PREFIX)
