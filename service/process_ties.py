"""How a process is tied to its parent and its children, by Linux's `prctl`.

Standard library only: the shim of the local stack starts without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends.

    Args:
        parent: The parent's process id, told before the fork.

    Returns:
        False if it has ended already, so that no signal will come: the caller ends by itself.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Become the parent of whatever a child leaves behind, also in a session of its own."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
