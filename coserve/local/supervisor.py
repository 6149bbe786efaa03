"""Keeps the parts of the stack running, and ends them in reverse order.

The supervisor knows nothing about what the parts are: `stack` decides that. Parts that were started
together (one *rank*) are ended together; a higher rank is ended first.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from coserve.local.part import Part, PartPlan

STATE_FILE = "run/state.json"


class Supervisor:
    """Starts parts, restarts what ends by itself, stops everything.

    `group` holds the tasks that watch: a fault in one of them ends the whole stack, loudly.
    """

    def __init__(
        self,
        home: Path,
        *,
        group: asyncio.TaskGroup,
        url: str,
        inherited_fds: Sequence[int] = (),
        say: Callable[[str], None],
    ) -> None:
        self._home = home
        self._group = group
        self._url = url
        self._fds = tuple(inherited_fds)
        self._say = say
        self._parts: list[tuple[int, Part]] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._stop_asked = asyncio.Event()
        self._num_signals = 0
        self._started_s = time.monotonic()

    # --- signals ------------------------------------------------------------------------------

    def listen_to_signals(self) -> None:
        """SIGINT and SIGTERM ask for the end; a second one kills what has not ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self._num_signals += 1
        self._stop_asked.set()
        if self._num_signals > 1:
            for _, part in self._parts:
                part.kill()

    @property
    def stop_was_asked(self) -> bool:
        """Whether the end was asked for."""
        return self._stop_asked.is_set()

    async def wait_for_stop(self) -> None:
        """Return when the end is asked for."""
        await self._stop_asked.wait()

    # --- parts --------------------------------------------------------------------------------

    async def start(self, plan: PartPlan, *, rank: int) -> Part:
        """Start a part, wait until it is ready, keep it so. Raises StartFailedError."""
        part = Part(plan, inherited_fds=self._fds, say=self._say, changed=self.write_state)
        self._parts.append((rank, part))
        await part.start()
        self._keepers.append(self._group.create_task(part.keep(), name=part.name))
        return part

    async def stop(self) -> None:
        """End every part, highest rank first; parts of one rank at once."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for rank in sorted({rank for rank, _ in self._parts}, reverse=True):
            ending = [part for each, part in self._parts if each == rank]
            if self._num_signals > 1:
                for part in ending:
                    part.kill()
            async with asyncio.TaskGroup() as group:
                for part in ending:
                    group.create_task(part.stop())
        (self._home / STATE_FILE).unlink(missing_ok=True)

    # --- for `coserve status` -----------------------------------------------------------------

    def write_state(self) -> None:
        """Tell `coserve status` how things are; replaces the file as a whole."""
        state = {
            "pid": os.getpid(),
            "url": self._url,
            "since_s": self._started_s,
            "parts": [
                {
                    "name": part.name,
                    "title": part.plan.title,
                    "state": part.state.value,
                    "pid": part.pid,
                    "restarts": part.num_restarts,
                    "since_s": part.since_s,
                    "log": str(part.plan.command.log),
                }
                for _, part in self._parts
            ],
        }
        path = self._home / STATE_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(state))
        partial.replace(path)
