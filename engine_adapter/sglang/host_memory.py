"""Memory the host pool may take: of the machine, and of the container we are in."""

from __future__ import annotations

from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")


def most_bytes(budget: int, *, pinned: bool) -> int:
    """The largest block that takes no more than the budget.

    torch's allocator of pinned memory rounds a block up to a power of two.
    """
    return 1 << (budget.bit_length() - 1) if pinned and budget > 0 else budget


def free_bytes(cgroup: Path = CGROUP) -> int:
    """What can be allocated without swapping and without the container being killed.

    Args:
        cgroup: Folder of this container's control group (version 2), or of none.
    """
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
