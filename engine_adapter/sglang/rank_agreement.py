"""Tensor parallelism: rank 0 decides, the other ranks do the same (one node).

Measured times, arrivals and copies differ between ranks, so nothing that depends on them may be
decided twice. Per step one plan travels from rank 0 to the others beside SGLang's own broadcast of
requests. Inside an armed step every rank passes a safepoint only after rank 0 has said for that
safepoint whether the pass goes on: words in shared memory, written by rank 0 alone::

    progress              = step id << 16 | layer << 1 | stop   the safepoint rank 0 passed last
    stopped[step id % 64] = step id << 16 | layer << 1 | 1      where a step stopped

A rank that is late reads the word of its own step: rank 0 may be in a later one, and may have
stopped that too. It cannot be 64 steps ahead, since every step's plan is agreed upon.

No rank passes a safepoint rank 0 has not passed, so all ranks stop before the same layer and no
collective operation is left half entered.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

import torch
from sglang.srt.utils import broadcast_pyobj

from engine_adapter.scheduling.plan import StepPlan

PROGRESS, STOPPED, STOPPED_WORDS = 0, 8, 64
WORDS_BYTES = STOPPED + 8 * STOPPED_WORDS
GIVE_UP_S = 120.0


class RankAgreement:
    """What one rank needs to act like rank 0.

    Attributes:
        rank: Rank in the tensor-parallel group.
        size: Ranks in the group.
    """

    def __init__(self, scheduler: Any) -> None:
        """Join the group of this scheduler.

        Raises:
            ValueError: If the ranks are spread over several nodes.
        """
        self.rank = scheduler.ps.tp_rank
        self.size = scheduler.ps.tp_size
        self._group = scheduler.tp_cpu_group
        self._source = scheduler.tp_group.ranks[0]
        self._global_rank = scheduler.tp_group.rank
        self._words: mmap.mmap | None = None
        if self.size == 1:
            return
        if scheduler.server_args.nnodes > 1:
            raise ValueError("co-serving needs all tensor-parallel ranks on one node")
        path = Path("/dev/shm") / f"coserve-{os.getuid()}-{scheduler.nccl_port}"
        self._words = _shared_words(path)
        self.lowest(0)  # every rank has opened the file
        if self.rank == 0:
            path.unlink()

    def share(self, plan: StepPlan | None) -> StepPlan:
        """Rank 0's plan, on every rank.

        Args:
            plan: The plan on rank 0, None elsewhere.
        """
        if self.size == 1:
            assert plan is not None
            return plan
        sent = [plan.to_plain()] if plan is not None else []
        received = broadcast_pyobj(sent, self._global_rank, self._group, src=self._source)
        return plan if plan is not None else StepPlan.from_plain(received[0])

    def lowest(self, number: int) -> int:
        """The smallest of the numbers the ranks give."""
        if self.size == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.int64)
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MIN, group=self._group)
        return int(tensor[0])

    def at_safepoint(self, step_id: int, layer: int, stop: bool) -> bool:
        """Whether the pass stops before ``layer``; the same answer on every rank.

        Args:
            step_id: The running step.
            layer: The layer that would be computed next.
            stop: What rank 0 saw; ignored elsewhere.

        Raises:
            TimeoutError: If rank 0 says nothing for two minutes.
        """
        if self._words is None:
            return stop
        word = step_id << 16 | layer << 1
        if self.rank == 0:
            if stop:
                self._write(_stopped(step_id), word | 1)
            self._write(PROGRESS, word | int(stop))
            return stop
        deadline_s = time.monotonic() + GIVE_UP_S
        while True:
            # Steps and layers only grow: rank 0 is here or beyond.
            if self._read(PROGRESS) >= word:
                return self._read(_stopped(step_id)) == word | 1
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"rank 0 did not reach layer {layer} of step {step_id}")
            time.sleep(0)

    def _write(self, offset: int, word: int) -> None:
        assert self._words is not None
        struct.pack_into("=q", self._words, offset, word)

    def _read(self, offset: int) -> int:
        assert self._words is not None
        word: int = struct.unpack_from("=q", self._words, offset)[0]
        return word


def _stopped(step_id: int) -> int:
    """Where the stop of a step is kept, as an offset in bytes."""
    return STOPPED + 8 * (step_id % STOPPED_WORDS)


def _shared_words(path: Path) -> mmap.mmap:
    """Aligned words that every rank maps; eight aligned bytes are read and written whole."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.closing(os.fdopen(descriptor, "r+b")) as file:
        os.ftruncate(file.fileno(), WORDS_BYTES)
        return mmap.mmap(file.fileno(), WORDS_BYTES)
