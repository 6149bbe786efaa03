"""Access lines, gathered for a moment and written together.

A line made and written by itself costs a request as much as its key, its checks and its limits
together: all of logging's code, cold, and a system call. A few at once cost a tenth.
A process that is killed loses what it gathered in its last `GATHER_S`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from service import log_lines

GATHER_S: Final = 0.05

logger = logging.getLogger("gateway.access")


class AccessLines:
    """Lines not written yet. Invariant: while there is one, a call of `write` is due."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, dict[str, Any]]] = []

    def add(self, line: dict[str, Any]) -> None:
        """Note a line; it is stamped with this instant."""
        if not self._lines:
            asyncio.get_running_loop().call_later(GATHER_S, self.write)
        self._lines.append((time.time_ns(), line))

    def write(self) -> None:
        """Log what was noted, in order."""
        lines, self._lines = self._lines, []
        with log_lines.together():
            for at_ns, line in lines:
                record = logger.makeRecord(logger.name, logging.INFO, "", 0, "request", (), None)
                record.fields = line
                record.created, record.msecs = at_ns / 1e9, at_ns // 1_000_000 % 1000
                logger.handle(record)
