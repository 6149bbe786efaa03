"""One part of the stack: a process, how to see that it is ready, and its life under supervision."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from coserve.local.command import Command
from coserve.local.errors import LocalError
from coserve.local.restart import Backoff, RestartPolicy

# --- Start one supervised process.


class ManagedProcess:
    """A process behind its shim. It dies with us, and everything it started dies with it.

    `inherited_fds` stay open in the shim, not in the process: a lock that outlives us.
    """

    def __init__(self, command: Command, *, inherited_fds: Sequence[int] = ()) -> None:
        self.command = command
        command.log.parent.mkdir(parents=True, exist_ok=True)
        life_read, self._life_write = os.pipe()
        try:
            self._popen = subprocess.Popen(  # our own argv, no shell
                command.shim_argv(life_read),
                env=dict(command.env),
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                pass_fds=(life_read, *inherited_fds),
                start_new_session=True,
            )
        finally:
            os.close(life_read)

    @property
    def pid(self) -> int:
        """The shim's process id; the process itself is its child."""
        return self._popen.pid

    def poll(self) -> int | None:
        """The exit code (128 + signal when killed by one), or None while it runs."""
        code = self._popen.poll()
        if code is not None and self._life_write >= 0:
            os.close(self._life_write)
            self._life_write = -1
        return code if code is None or code >= 0 else 128 - code

    def ask_to_stop(self) -> None:
        """Send the process its stop signal; a second call kills its whole tree."""
        if self.poll() is None:
            self._popen.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask, wait, and return the exit code. The shim bounds the wait by `stop_grace_s`."""
        self.ask_to_stop()
        self._popen.wait()
        code = self.poll()
        assert code is not None
        return code


_POLL_INTERVAL_S = 0.25
_PROBE_EVERY_S = 0.1
_TAIL_BYTES = 8192
_TAIL_LINES = 15
MOST_READY_LIMIT_S = 600.0


class PartState(StrEnum):
    """What a part is doing."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True)
class PartPlan:
    """A part as decided: what runs, when it counts as ready, what follows when it ends.

    Attributes:
        title: For people.
        command: The process.
        is_ready: Asked again and again after a start; must not raise.
        ready_limit_s: A start that takes longer is a failed one. A part that was ready before and
            is started again has twice as long after each start that failed by it, up to
            `MOST_READY_LIMIT_S`: a busy machine must not end every start halfway.
        restart: What happens when the process ends by itself.
        refusal: Asked with the exit code of a process that ended before it was ready: what it said
            itself about why it cannot start, in one sentence, else an empty text. A process that
            said so is not tried again.
    """

    title: str
    command: Command
    is_ready: Callable[[], Awaitable[bool]]
    ready_limit_s: float = 60.0
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    refusal: Callable[[int], str] = field(default=lambda code: "")


class StartFailedError(LocalError):
    """A part did not become ready."""


class RefusedError(StartFailedError):
    """A part said in one sentence what is wrong with its settings or its machine."""


def log_tail(path: Path, num_lines: int = _TAIL_LINES) -> str:
    """The last lines of a log, indented."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(f"    {line}" for line in lines[-num_lines:])


class Part:
    """Keeps one process running from `start` until `stop`.

    `changed` is called after every change of state; `say` gets a line for people.
    """

    def __init__(
        self,
        plan: PartPlan,
        *,
        inherited_fds: Sequence[int] = (),
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.state = PartState.STOPPED
        self.num_restarts = 0
        self.since_s = time.monotonic()
        self._fds = tuple(inherited_fds)
        self._say = say
        self._changed = changed
        self._process: ManagedProcess | None = None
        self._backoff = Backoff(plan.restart)
        self._ready_limit_s = plan.ready_limit_s
        self._timed_out = False
        self._refusal = ""

    @property
    def name(self) -> str:
        """The part's name in logs and `coserve status`."""
        return self.plan.command.name

    @property
    def pid(self) -> int | None:
        """The process id of the shim, while there is one."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def _enter(self, state: PartState) -> None:
        self.state = state
        self.since_s = time.monotonic()
        self._changed()

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises StartFailedError."""
        failure = ""
        for number in range(self.plan.restart.num_tries_at_start):
            if number:
                await asyncio.sleep(self._backoff.next_delay_s(0.0))
            self._spawn()
            failure = await self._wait_until_ready()
            if not failure:
                self._enter(PartState.READY)
                return
            if self._timed_out or self._refusal:
                break
        self._enter(PartState.STOPPED)
        if self._refusal:
            raise RefusedError(f"{self.plan.title} cannot start: {self._refusal}")
        log = self.plan.command.log
        raise StartFailedError(
            f"{self.plan.title} did not start: {failure}. The end of {log}:\n{log_tail(log)}"
        )

    def _spawn(self) -> None:
        self._enter(PartState.STARTING)
        self._process = ManagedProcess(self.plan.command, inherited_fds=self._fds)
        self._changed()

    async def _wait_until_ready(self) -> str:
        """Empty when ready, else why not; then nothing of the process is left."""
        process = self._process
        assert process is not None
        limit = time.monotonic() + self._ready_limit_s
        while time.monotonic() < limit:
            code = process.poll()
            if code is not None:
                self._refusal = self.plan.refusal(code)
                return f"it ended with exit code {code}"
            if await self.plan.is_ready():
                return ""
            await asyncio.sleep(_PROBE_EVERY_S)
        self._timed_out = True
        await self._end(process)
        return f"it was not ready after {self._ready_limit_s:.0f} s"

    async def keep(self) -> None:
        """Start the process again whenever it ends; runs until cancelled."""
        started_at = time.monotonic()
        while True:
            process = self._process
            assert process is not None
            code = process.poll()
            if code is None:
                await asyncio.sleep(_POLL_INTERVAL_S)
                continue
            delay_s = self._backoff.next_delay_s(time.monotonic() - started_at)
            self.num_restarts += 1
            self._enter(PartState.RESTARTING)
            self._say(
                f"{self.plan.title} ended (exit code {code}): starting it again in "
                f"{delay_s:.1f} s; log: {self.plan.command.log}"
            )
            await asyncio.sleep(delay_s)
            started_at = time.monotonic()
            self._spawn()
            self._timed_out = False
            if not await self._wait_until_ready():
                self._ready_limit_s = self.plan.ready_limit_s
                self._enter(PartState.READY)
                self._say(f"{self.plan.title} is ready again")
            elif self._timed_out:
                before_s = self._ready_limit_s
                self._ready_limit_s = max(before_s, min(2 * before_s, MOST_READY_LIMIT_S))
                self._say(
                    f"{self.plan.title} was not ready after {before_s:.0f} s; it gets "
                    f"{self._ready_limit_s:.0f} s now"
                )

    async def stop(self) -> None:
        """Ask the process to end and wait; the shim kills what does not end in time."""
        process = self._process
        if process is None or process.poll() is not None:
            self._enter(PartState.STOPPED)
            return
        self._enter(PartState.STOPPING)
        await self._end(process)
        self._enter(PartState.STOPPED)

    def kill(self) -> None:
        """Second and last word: the whole tree ends now."""
        if self._process is not None:
            self._process.ask_to_stop()

    @staticmethod
    async def _end(process: ManagedProcess) -> None:
        process.ask_to_stop()
        while process.poll() is None:  # noqa: ASYNC110 - the kernel tells no event loop
            await asyncio.sleep(0.02)
