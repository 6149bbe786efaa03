"""How an engine refuses to start: one sentence that says what to do; and what memory it may take.

The settings themselves are declared in `engine_adapter/runtime_settings.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from engine_adapter.refusal import EXIT_REFUSED, sentence

# --- End this process with one sentence, and have the engine's server end with it too.
#
# Most refusals happen in a scheduler process: it has seen the model and the memory. SGLang's server
# notices that the process died, prints a traceback and ends with its own status; the sentence would
# drown. So the scheduler leaves it in a file, and the server, whatever ends it, repeats it last.

# Set by the server for the processes it starts; no setting, so it does not begin with COSERVE_.
_FILE = "_COSERVE_LAST_WORD"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def refuse(reason: str) -> NoReturn:
    """Say why the engine cannot start, and end the process at once.

    SGLang logs and goes on when a plugin raises, and signals its parent when a scheduler does.
    """
    line = sentence(reason) + "\n"
    sys.stderr.write(line)
    sys.stderr.flush()
    path = os.environ.get(_FILE)
    if path and path != str(_file_of_this_process()):
        _leave(Path(path), line)
    os._exit(EXIT_REFUSED)


def _leave(path: Path, line: str) -> None:
    """Write the file unless another rank has: the first word counts, and no link is followed."""
    with suppress(OSError), os.fdopen(os.open(path, _NEW, 0o600), "w") as file:
        file.write(line)


def _file_of_this_process() -> Path:
    return Path(tempfile.gettempdir()) / f"coserve-last-word-{os.getpid()}"


def repeat_at_the_end() -> None:
    """In the engine's first process: if a child of it refuses to start, say so last."""
    if _FILE in os.environ:
        return
    path = _file_of_this_process()
    path.unlink(missing_ok=True)  # of an older process with this number
    os.environ[_FILE] = str(path)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            line = path.read_text()
            path.unlink()
        except OSError:
            before(kind, error, trace)
            return
        sys.stderr.write(line)
        sys.stderr.flush()
        os._exit(EXIT_REFUSED)  # the children have been ended by SGLang

    sys.excepthook = hook


@contextmanager
def ending_in_one_sentence() -> Iterator[None]:
    """Turn a refused setting into one line on standard error and the end of the process.

    SGLang would log a traceback and signal its parent; the reason would drown.
    """
    try:
        yield
    except ValueError as error:  # SettingError, ProfileError, and what the parts refuse
        refuse(str(error))


# --- Memory the host pool may take: of the machine, and of the container we are in.

CGROUP = Path("/sys/fs/cgroup")


def total_bytes() -> int:
    """Memory of the machine."""
    import psutil  # of the engine's environment

    return int(psutil.virtual_memory().total)


def free_bytes(cgroup: Path = CGROUP) -> int:
    """What can be allocated without swapping and without the container being killed.

    Args:
        cgroup: Folder of this container's control group (version 2), or of none.
    """
    import psutil  # of the engine's environment

    available = int(psutil.virtual_memory().available)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        if limit == "max":
            return available
        used = int((cgroup / "memory.current").read_text())
        fields = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        # File pages that nobody has used for a while are given back first.
        return max(0, min(available, int(limit) - used + int(fields.get("inactive_file", 0))))
    except (OSError, ValueError):
        return available
