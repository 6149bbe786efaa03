"""Where the scheduler waits for the device, by the line of our code that is behind it.

PyTorch warns at each blocking transfer (`torch.cuda.set_sync_debug_mode`). A warning is counted
under the innermost frame of our packages, or of SGLang where none of ours is on the stack.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

OURS = "/engine_adapter/", "/coserve_kernels/"
MESSAGE = "called a synchronizing CUDA operation"


def place(frame: FrameType | None) -> str:
    """File, line and function behind a transfer."""
    theirs = ""
    while frame is not None:
        name = frame.f_code.co_filename
        told = f"{'/'.join(name.split('/')[-3:])}:{frame.f_lineno} {frame.f_code.co_name}"
        if any(part in name for part in OURS):
            return told
        if not theirs and "/sglang/" in name:
            theirs = told
        frame = frame.f_back
    return theirs or "elsewhere"


@contextmanager
def counted(torch: Any) -> Iterator[Counter[str]]:
    """Count the blocking transfers of this process inside the block."""
    found: Counter[str] = Counter()
    shown = warnings.showwarning

    def show(message: Any, *args: Any, **kwargs: Any) -> None:
        if MESSAGE in str(message):
            found[place(sys._getframe(1))] += 1
        else:
            shown(message, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
