"""What it costs that tensor-parallel ranks agree on stops.

    python -m bench.stop_broadcast

Two processes play rank 0 and rank 1: they come to a safepoint every four milliseconds at the same
instants, as ranks do that compute layers together. Printed is the time that each spends there. The
ways are shared memory, a connection within the host and, as root, one into a network namespace of
its own. `flag` is no way of the engine's but the least that one could cost: a word in shared memory
that rank 0 writes when it stops, and the other rank reads without waiting. The share is the larger
of both times in the distance of safepoints: the target is 0.1 %.

Quoted in docs/runtime.md.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.paths import ROOT
from bench.report import at_most, report
from engine_adapter.sglang.stop_broadcast import (
    STOPS_BYTES,
    Listener,
    SharedStops,
    StopBroadcast,
    encode,
    link_to,
)
from tests.fixtures.second_node import second_node

NUM_SAFEPOINTS = 2000
APART_S = 0.004
TARGET_PERCENT = 0.1


def _times_us(begin_s: float, at_safepoint: Callable[[int], object]) -> list[float]:
    """What each safepoint takes, from an instant on that both ranks know."""
    took_us = []
    for number in range(NUM_SAFEPOINTS):
        due_s = begin_s + number * APART_S
        while (left_s := due_s - time.monotonic()) > 0:
            time.sleep(max(left_s - 0.0003, 0))  # then to the instant, as computing would
        began_s = time.perf_counter()
        at_safepoint(encode(1, number + 1))
        took_us.append((time.perf_counter() - began_s) * 1e6)
    return took_us


def _told(took_us: list[float]) -> bytes:
    return json.dumps(took_us).encode()


def _found(first_us: list[float], other_us: list[float]) -> dict[str, float]:
    first, other = statistics.median(first_us), statistics.median(other_us)
    return {
        "rank_0_us": first,
        "other_rank_us": other,
        "other_rank_p95_us": sorted(other_us)[int(0.95 * len(other_us))],
        "share_percent": max(first, other) / (APART_S * 1e6) * 100,
    }


class _Flag:
    """A stop is written where there is one; nobody waits."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def say(self, word: int) -> bool:
        if word & 1:
            self._memory[:8] = word.to_bytes(8, "little")
        return bool(word & 1)

    def stops_at(self, safepoint: int) -> bool:
        return int.from_bytes(self._memory[:8], "little") == safepoint | 1


def _in_memory(words: StopBroadcast) -> dict[str, float]:
    begin_s = time.monotonic() + 0.5
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "wb") as out:
            out.write(_told(_times_us(begin_s, words.stops_at)))
        os._exit(0)
    os.close(writing)
    first_us = _times_us(begin_s, words.say)
    with os.fdopen(reading, "rb") as said:
        other_us = json.loads(said.read())
    os.waitpid(child, 0)
    return _found(first_us, other_us)


def _connected(host: str, argv_of: Callable[[list[str]], list[str]]) -> dict[str, float]:
    listener = Listener(host)
    address, port, secret = listener.invitation
    begin_s = time.monotonic() + 3.0  # one clock: both processes are on this host
    told = json.dumps([address, port, secret.hex(), begin_s])
    argv = argv_of([sys.executable, "-m", "bench.stop_broadcast", "follow", told])
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as child:
        words = listener.links(1)
        first_us = _times_us(begin_s, words.say)
        assert child.stdout is not None
        return _found(first_us, json.loads(child.stdout.read()))


def main() -> int:
    """Measure each way, print, write."""
    if sys.argv[1:2] == ["follow"]:
        address, port, secret, begin_s = json.loads(sys.argv[2])
        words = link_to((address, port, bytes.fromhex(secret)))
        sys.stdout.buffer.write(_told(_times_us(begin_s, words.stops_at)))
        return 0
    measured: dict[str, Any] = {}
    memory = mmap.mmap(-1, STOPS_BYTES)
    ways = {
        "flag": _in_memory(_Flag(memory)),
        "shared": _in_memory(SharedStops(memory)),
        "connection": _connected("127.0.0.1", lambda argv: argv),
    }
    if os.geteuid() == 0:
        with ExitStack() as stack:
            node = stack.enter_context(second_node())
            ways["namespace"] = _connected(node.address, node.argv)
    for name, found in ways.items():
        measured |= {f"{name}_{figure}": value for figure, value in found.items()}
    targets = {
        name: at_most(TARGET_PERCENT) for name in measured if name.endswith("_share_percent")
    }
    return report("stop_broadcast", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
