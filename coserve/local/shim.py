"""A small watcher around one supervised process, so that nothing outlives the supervisor.

The supervisor starts `shim`, the shim starts the process. The shim

- holds the read end of a pipe whose write end only the supervisor holds: when the supervisor dies,
  however it dies, the kernel closes the pipe and the shim stops its process;
- is a "child subreaper": whatever the process starts, even in a session of its own, comes back to
  the shim when its parent dies, and is killed before the shim ends;
- turns SIGTERM into the process's own stop signal, kills the tree after `stop_grace_s`, and at
  once on a second SIGTERM;
- writes the process's output to a size-bounded log;
- removes the files the process leaves outside its folder (`leftovers`).

A parent-death signal alone would not do: it is tied to the parent's thread, is cleared when a
process changes its user (Postgres runs as `nobody` under root), and is not inherited by
grandchildren. It is set as well, after the change of user, for the case that the shim is killed.

Standard library only, started without site-packages: about 10 MB and 30 ms each.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from service.process_ties import adopt_orphans, end_with_parent

# --- A log file that cannot fill the disk.


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


# --- Files that a process makes outside its folder and never removes.
#
# Which of them are its own is read from what its processes hold open: another engine on this host
# has files of the same form. Standard library only, for the shim.


class Leftovers:
    """The files whose names begin in one way, as far as they were seen open.

    Args:
        prefix: Of their whole path; empty for none.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: set[Path] = set()

    @property
    def sought(self) -> bool:
        """Whether there are such files, and none has been seen yet."""
        return bool(self._prefix) and not self._seen

    def note(self, pids: Iterable[int]) -> None:
        """See what these processes hold open; what they have closed by then is not seen."""
        if not self._prefix:
            return
        for pid in pids:
            with suppress(OSError):  # it has ended
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        target = str(link.readlink())
                        if target.startswith(self._prefix):
                            self._seen.add(Path(target))

    def remove(self) -> None:
        """Remove what was seen; its processes have ended."""
        for path in self._seen:
            with suppress(OSError):
                path.unlink()


_ORPHAN_GRACE_S = 1.0
_KILL_LIMIT_S = 5.0
_CHUNK_BYTES = 65536
_HIGHEST_FD = 4096
_ALONE_GRACE_S = 3.0
_POLL_INTERVAL_S = 2.0


def descendants(root: int) -> list[int]:
    """The ids of all living processes below `root`, read from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:
            continue
        # The name in brackets may hold anything; the fields after the last bracket do not.
        state, parent = stat.rpartition(b")")[2].split()[:2]
        if state != b"Z":
            parents[int(entry.name)] = int(parent)
    found = {root}
    grew = True
    while grew:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        grew = bool(below)
    return sorted(found - {root})


class Shim:
    """One process, its stop and its log."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._log = RotatingLog(
            Path(spec["log"]), max_bytes=spec["log_max_bytes"], keep=spec["log_keep"]
        )
        self._leftovers = Leftovers(spec["leftovers"])
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._num_stops = 0
        self._kill_at: float | None = None
        self._exit_code: int | None = None
        self._pid = 0

    def run(self) -> int:
        """Start the process, watch it to its end; its exit code (128 + signal when killed)."""
        adopt_orphans()
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_stop)
        self._output, output_write = os.pipe()
        os.set_blocking(self._output, False)
        shim_pid = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._become_process(output_write, shim_pid)
        os.close(output_write)
        self._watch()
        self._end_orphans()
        self._leftovers.remove()
        self._drain()
        self._log.close()
        return self._exit_code if self._exit_code is not None else 1

    def _become_process(self, output: int, shim_pid: int) -> NoReturn:
        """In the forked child: drop privileges, tie our life to the shim's, exec."""
        spec = self._spec
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.closerange(3, _HIGHEST_FD)
            if spec["uid"] is not None:
                os.setgroups([])
                os.setgid(spec["gid"])
                os.setuid(spec["uid"])
            if not end_with_parent(shim_pid):
                os._exit(1)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.execvp(spec["argv"][0], spec["argv"])
        except OSError as error:
            os.write(2, f"cannot start {spec['argv'][0]}: {error}\n".encode())
        os._exit(127)

    def _on_stop(self, *_: object) -> None:
        self._num_stops += 1
        self._stop()

    def _stop(self, grace_s: float | None = None) -> None:
        """First call: ask. Any later one: kill the whole tree now."""
        now = time.monotonic()
        if self._kill_at is None:
            self._leftovers.note(descendants(os.getpid()))
            self._kill_at = now + (self._spec["stop_grace_s"] if grace_s is None else grace_s)
            self._send(self._pid, self._spec["stop_signal"])
        elif self._num_stops > 1:
            self._kill_at = now

    def _send(self, pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def _reap(self) -> bool:
        """Collect what has ended; whether any child is left, on its way out included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                self._exit_code = code if code >= 0 else 128 - code

    def _watch(self) -> None:
        waiting = [self._spec["life_fd"], self._output, self._wake_read.fileno()]
        while self._exit_code is None:
            timeout = None
            if self._kill_at is not None:
                timeout = max(0.0, self._kill_at - time.monotonic())
            elif self._leftovers.sought:
                self._leftovers.note(descendants(os.getpid()))
                timeout = _POLL_INTERVAL_S
            ready, _, _ = select.select(waiting, [], [], timeout)
            if self._wake_read.fileno() in ready:
                self._wake_read.recv(4096)
            if self._output in ready and not self._drain():
                waiting.remove(self._output)
            # Nothing is ever written to the life pipe: readable means the supervisor is gone.
            if self._spec["life_fd"] in ready:
                waiting.remove(self._spec["life_fd"])
                self._stop(min(_ALONE_GRACE_S, self._spec["stop_grace_s"]))
            self._reap()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                for pid in descendants(os.getpid()):
                    self._send(pid, signal.SIGKILL)
                self._kill_at = time.monotonic() + 0.2

    def _drain(self) -> bool:
        """Move what was written into the log; False when every writer is gone."""
        while True:
            try:
                data = os.read(self._output, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._log.write(data)

    def _end_orphans(self) -> None:
        """Whatever the process left behind: asked to end, then killed, and waited for.

        Waiting matters: a killed engine holds its memory (and a GPU's) until the kernel is done.
        """
        killed_at = time.monotonic() + (0.0 if self._num_stops > 1 else _ORPHAN_GRACE_S)
        limit = killed_at + _KILL_LIMIT_S
        asked: set[int] = set()
        while self._reap() and time.monotonic() < limit:
            for pid in descendants(os.getpid()):
                if time.monotonic() >= killed_at:
                    self._send(pid, signal.SIGKILL)
                elif pid not in asked:
                    asked.add(pid)
                    self._send(pid, signal.SIGTERM)
            self._drain()
            time.sleep(0.02)


def main() -> None:
    """`shim ROOT SPEC`: SPEC is the JSON that `Command.shim_argv` writes."""
    sys.exit(Shim(json.loads(sys.argv[2])).run())
