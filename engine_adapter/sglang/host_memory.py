"""Page-locked memory of the host: how much of it an engine may take, and taking it in blocks.

A GPU copies from and to page-locked memory only without the host's help, and the system can neither
swap nor take such memory back. Engines that start beside each other on one host, one for each GPU
say, therefore take it in turns, and each no more than its GPUs' part of half the host.

The memory is locked block by block, which is told in the log, since hundreds of GiB take minutes.
Where a block is refused, half of what was locked is given back: a host without memory to lock is
close to ending somebody.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

logger = logging.getLogger(__name__)
BLOCK_BYTES: Final = 4 << 30
SHARE_OF_FREE: Final = 4
SHARE_OF_HOST: Final = 2
TURN: Final = Path("/dev/shm/coserve-host-memory.lock")
GPUS: Final = Path("/proc/driver/nvidia/gpus")


class PageLocks(Protocol):
    """What locks memory: CUDA."""

    def lock(self, address: int, num_bytes: int) -> bool:
        """Whether it could be locked."""
        ...

    def unlock(self, address: int) -> None:
        """Give back what was locked at this address."""
        ...


def fair_bytes(*, free: int, total: int, ranks: int, host_gpus: int, pinned: bool) -> int:
    """What one rank's pool takes if nobody said a size.

    Args:
        free: Memory that can be allocated now.
        total: Memory of the host.
        ranks: Ranks of this engine, each with a pool and a GPU of its own.
        host_gpus: GPUs of the host, those of other engines included.
        pinned: The pool is page-locked.
    """
    most = free // SHARE_OF_FREE
    if pinned:
        most = min(most, total * ranks // (SHARE_OF_HOST * max(ranks, host_gpus)))
    return most // ranks


def gpus_of_host(folder: Path = GPUS) -> int:
    """All of them, whichever this process may use; 0 without a driver."""
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@contextmanager
def turn(path: Path = TURN) -> Iterator[None]:
    """Only one engine of the host looks at free memory and takes some at a time."""
    with path.open("a") as file:
        with suppress(PermissionError):  # engines of other users wait too; it may be theirs
            path.chmod(0o666)
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open too


def lock_in_blocks(
    num_bytes: int, locks: PageLocks, address: Callable[[mmap.mmap], int], block: int = BLOCK_BYTES
) -> tuple[mmap.mmap, int]:
    """New memory, page-locked.

    Args:
        num_bytes: How much is wanted, more than 0.
        locks: Locks it.
        address: Where memory lies.
        block: Locked at once; a multiple of the system's page.

    Returns:
        The memory, and how many bytes from its beginning on are locked: all of them, or half of
        what could be locked, in whole blocks.
    """
    memory = mmap.mmap(-1, num_bytes)
    base, locked = address(memory), 0
    for begin in range(0, num_bytes, block):
        size = min(block, num_bytes - begin)
        if not locks.lock(base + begin, size):
            kept = locked // 2 // block * block
            for begun in range(kept, locked, block):
                locks.unlock(base + begun)
            logger.warning(
                "coserve: the system locked %.1f of %.1f GiB for KV on the host and refused more; "
                "%.1f GiB are used",
                locked / 2**30,
                num_bytes / 2**30,
                kept / 2**30,
            )
            return memory, kept
        locked = begin + size
        if num_bytes > block:
            logger.info(
                "coserve: %.0f of %.0f GiB of host memory are locked for KV",
                locked / 2**30,
                num_bytes / 2**30,
            )
    return memory, locked
