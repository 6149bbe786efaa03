"""Start one supervised process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from coserve.local.command import Command


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
