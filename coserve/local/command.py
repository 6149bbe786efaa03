"""What a supervised process is, as data."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from service.data_folder import PACKAGES

_START_SHIM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from coserve.local.shim import main; main()"
)


@dataclass(frozen=True)
class Account:
    """The system user a process runs as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class LogLimits:
    """How large a log may grow: `keep` old files of `max_bytes` beside the current one."""

    max_bytes: int = 10 * 2**20
    keep: int = 3


@dataclass(frozen=True)
class Command:
    """One process: what to run, as whom, how to ask it to stop and for how long to wait.

    `env` is the whole environment, not an addition to ours. Files that it has open and whose paths
    begin with `leftovers` are removed when it has ended.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 8.0
    log_limits: LogLimits = LogLimits()
    leftovers: str = ""

    def shim_argv(self, life_fd: int) -> list[str]:
        """The command line of the small process that watches this one (see `shim`).

        `life_fd` is the read end of a pipe whose write end only the supervisor holds.
        """
        spec = {
            "argv": self.argv,
            "life_fd": life_fd,
            "stop_signal": int(self.stop_signal),
            "stop_grace_s": self.stop_grace_s,
            "log": str(self.log),
            "log_max_bytes": self.log_limits.max_bytes,
            "log_keep": self.log_limits.keep,
            "leftovers": self.leftovers,
            "uid": self.account.uid if self.account else None,
            "gid": self.account.gid if self.account else None,
        }
        # -I -S: neither the environment nor installed packages can change or slow the shim.
        return [sys.executable, "-I", "-S", "-c", _START_SHIM, str(PACKAGES), json.dumps(spec)]
