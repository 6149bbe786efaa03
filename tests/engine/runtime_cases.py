"""Parts of the runtime that need torch and SGLang, but no model. Runs in the engine's venv."""

from __future__ import annotations

import json
import mmap
import random
import sys
import time
from array import array
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import zmq  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import InsertParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey  # noqa: E402

from engine_adapter.scheduling.plan import Decision  # noqa: E402
from engine_adapter.sglang.monitor import Monitor  # noqa: E402
from engine_adapter.sglang.prefix_tree import cached_tokens  # noqa: E402
from engine_adapter.sglang.safepoints import (  # noqa: E402
    PENDING_REDUCE,
    RankAgreement,
    StopFlag,
    cut_forward_batch,
)
from engine_adapter.sglang.stop_broadcast import STOPS_BYTES, SharedStops  # noqa: E402
from engine_adapter.sglang.versions.installed import seam  # noqa: E402

HIDDEN = 4


def cut(positions: torch.Tensor, *, pending: bool) -> dict[str, Any]:
    """Rows of 2, 3 and 1 tokens; the first and the last stay."""
    hidden = torch.arange(6 * HIDDEN, dtype=torch.float32).reshape(6, HIDDEN)
    if pending:
        setattr(hidden, PENDING_REDUCE, True)
    lengths = torch.tensor([2, 3, 1])
    batch = SimpleNamespace(
        batch_size=3,
        input_ids=torch.arange(6),
        out_cache_loc=torch.arange(6),
        positions=positions,
        mrope_positions=positions if positions.dim() == 2 else None,
        seq_lens_cpu=lengths,
        extend_seq_lens=lengths,
        extend_seq_lens_cpu=[2, 3, 1],
    )
    kept_positions, kept, *_ = cut_forward_batch(batch, positions, hidden, (None,), [0, 2])
    axes = batch.mrope_positions
    return {
        "rows": [int(row[0]) // HIDDEN for row in kept],
        "positions": kept_positions.tolist(),
        "axes": None if axes is None else axes.tolist(),
        "marked": getattr(kept, PENDING_REDUCE, False),
    }


def late_rank() -> dict[str, Any]:
    """Rank 1 asks for a safepoint of step 5 when rank 0 has stopped step 6 too."""
    words = SharedStops(mmap.mmap(-1, STOPS_BYTES))
    first, second = (object.__new__(RankAgreement) for _ in range(2))
    for rank, agreement in enumerate((first, second)):
        agreement.rank, agreement._words = rank, words
    first.at_safepoint(5, 4, False)
    first.at_safepoint(5, 8, True)
    first.at_safepoint(6, 4, True)
    return {
        "went_on": second.at_safepoint(5, 4, False),
        "stopped": second.at_safepoint(5, 8, False),
        "next": second.at_safepoint(6, 4, False),
    }


def prefixes() -> dict[str, Any]:
    """The read-only walk finds what SGLang's own match finds, and changes nothing."""
    chance = random.Random(7)
    compared = longest = 0
    for page in (1, 4):
        allocator = SimpleNamespace(device="cpu", free=lambda _slots: None)
        tree = RadixCache.create_simulated(mock_allocator=allocator, page_size=page)
        for _ in range(300):
            tokens = array("q", [chance.randrange(2) for _ in range(chance.randrange(1, 40))])
            name = chance.choice((None, "salt"))
            before = tree.total_size(), len(tree.root_node.children)
            found = cached_tokens(tree, RadixKey(tokens, name, limit=len(tokens) - 1))
            assert before == (tree.total_size(), len(tree.root_node.children))
            own = seam.hit_len(tree, RadixKey(tokens, name, limit=len(tokens) - 1))
            assert found == own, (found, own)
            compared += 1
            longest = max(longest, found)
            tree.insert(InsertParams(key=RadixKey(tokens, name), value=torch.arange(len(tokens))))
    return {"compared": compared, "longest": longest}


def dead_monitor() -> dict[str, Any]:
    """A message that cannot be read ends the scheduler that reads on, not the thread in silence."""
    context = zmq.Context()
    ours, theirs = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    ours.bind("inproc://requests")
    theirs.connect("inproc://requests")
    monitor = Monitor(ours)
    monitor.start(StopFlag(), lambda _arrival, _step: Decision.CONTINUE, lambda _request: 0)
    theirs.send(b"not a message")
    reader = monitor.stand_in
    said: deque[str] = deque()
    until_s = time.monotonic() + 60.0
    while not said and time.monotonic() < until_s:
        try:
            reader.recv_pyobj(zmq.NOBLOCK)
        except zmq.Again:
            time.sleep(0.01)
        except RuntimeError as error:
            said.append(str(error))
    return {"said": list(said)}


def main() -> None:
    plain, axes = torch.arange(6), torch.arange(18).reshape(3, 6)
    results = {
        "plain": cut(plain, pending=False),
        "pending": cut(plain, pending=True),
        "axes": cut(axes, pending=False),
        "late_rank": late_rank(),
        "prefixes": prefixes(),
        "dead_monitor": dead_monitor(),
    }
    print("RESULTS " + json.dumps(results), flush=True)


main()
