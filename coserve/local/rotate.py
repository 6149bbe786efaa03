"""A log file that cannot fill the disk."""

from __future__ import annotations

import os
from pathlib import Path


class RotatingLog:
    """Append bytes; past `max_bytes` the file becomes `NAME.1`, the old `.1` becomes `.2`, ….

    A write that fails (disk full) is dropped: a full disk must not stop the process that logs.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd = -1
        self._size_bytes = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size_bytes = os.fstat(self._fd).st_size

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _rotate(self) -> None:
        os.close(self._fd)
        for number in range(self._keep, 0, -1):
            older = self._numbered(number - 1) if number > 1 else self._path
            if older.exists():
                older.replace(self._numbered(number))
        if self._keep == 0:
            self._path.unlink(missing_ok=True)
        self._open()

    def write(self, data: bytes) -> None:
        """Append `data`, rotating first when the file would grow past its limit."""
        try:
            if self._size_bytes and self._size_bytes + len(data) > self._max_bytes:
                self._rotate()
            self._size_bytes += os.write(self._fd, data)
        except OSError:
            return

    def close(self) -> None:
        """Close the file; nothing may be written after."""
        os.close(self._fd)
