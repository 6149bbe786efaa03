"""Engines beside each other leave the host its memory, and take theirs in blocks."""

from __future__ import annotations

import mmap
import multiprocessing
import time
from pathlib import Path

import pytest

from engine_adapter.sglang.host_memory import fair_bytes, gpus_of_host, lock_in_blocks, turn

GIB = 1 << 30


def test_eight_engines_on_one_host_leave_half_of_it() -> None:
    total = free = 2048 * GIB
    taken = []
    for _ in range(8):
        taken.append(fair_bytes(free=free, total=total, ranks=1, host_gpus=8, pinned=True))
        free -= taken[-1]
    assert sum(taken) <= total // 2
    assert taken == [128 * GIB] * 8


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("host_gpus", [0, 1, 8])
def test_ranks_share_what_their_engine_may_take(ranks: int, host_gpus: int) -> None:
    each = fair_bytes(
        free=400 * GIB, total=512 * GIB, ranks=ranks, host_gpus=host_gpus, pinned=True
    )
    assert each * ranks <= 100 * GIB
    assert each * max(ranks, host_gpus) <= 256 * GIB


def test_memory_that_is_not_locked_is_a_quarter_of_what_is_free() -> None:
    assert fair_bytes(free=40 * GIB, total=64 * GIB, ranks=1, host_gpus=8, pinned=False) == 10 * GIB


def test_gpus_are_counted_by_the_driver(tmp_path: Path) -> None:
    assert gpus_of_host(tmp_path / "none") == 0
    for name in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / name).mkdir()
    assert gpus_of_host(tmp_path) == 2


class Locks:
    """Locks so many blocks and no more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held: dict[int, int] = {}

    def lock(self, address: int, num_bytes: int) -> bool:
        if len(self.held) == self.most:
            return False
        self.held[address] = num_bytes
        return True

    def unlock(self, address: int) -> None:
        del self.held[address]


def at_zero(_: mmap.mmap) -> int:
    return 0


PAGE = mmap.PAGESIZE


def test_blocks_lie_beside_each_other_and_are_all_of_it() -> None:
    locks = Locks(99)
    memory, locked = lock_in_blocks(10 * PAGE + 5, locks, at_zero, block=4 * PAGE)
    assert locked == len(memory) == 10 * PAGE + 5
    assert locks.held == {0: 4 * PAGE, 4 * PAGE: 4 * PAGE, 8 * PAGE: 2 * PAGE + 5}


@pytest.mark.parametrize(("most", "kept"), [(0, 0), (1, 0), (4, 2), (5, 2)])
def test_where_a_block_is_refused_half_of_it_is_given_back(most: int, kept: int) -> None:
    locks = Locks(most)
    _, locked = lock_in_blocks(10 * PAGE, locks, at_zero, block=PAGE)
    assert locked == kept * PAGE
    assert sorted(locks.held) == [i * PAGE for i in range(kept)]


def _second(path: Path, done: Path) -> None:
    with turn(path):
        done.touch()


def test_engines_look_at_free_memory_one_after_the_other(tmp_path: Path) -> None:
    path, done = tmp_path / "turn", tmp_path / "done"
    other = multiprocessing.get_context("fork").Process(target=_second, args=(path, done))
    with turn(path):
        other.start()
        time.sleep(0.3)
        assert not done.exists()
    other.join(20.0)
    assert done.exists()
