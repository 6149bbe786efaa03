"""From the word to stop to a free device: our bound of launches on real events, without SGLang.

Passes of 32 layers of an 8B model's products run as `engine_adapter.sglang.cuda_pass.RunAhead`
lets them. Another thread raises the word at a random instant. Taken are, in milliseconds, the time
from the word to the host's stop and to the instant at which the device has done what was launched
(an event behind the stop), what a pass takes beside one that nothing bounds, and the same with a
thread that computes in Python beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine_adapter.sglang.cuda_pass import SWITCH_INTERVAL_S, RunAhead

LAYERS, HIDDEN, INNER = 32, 4096, 14336
PASSES = 40
SIZES = {"cuda": (2048, HIDDEN, INNER), "cpu": (16, 64, 128)}


class Pass:
    """A pass of products as large as a model's, one group of launches a layer.

    Args:
        device: Where.
        graphs: Whether a layer is one graph.
    """

    def __init__(self, device: str, graphs: bool) -> None:
        tokens, hidden, inner = SIZES[device]
        dtype = torch.bfloat16
        self.device = device
        self._rows = torch.randn(tokens, hidden, dtype=dtype, device=device)
        self._up = torch.randn(hidden, inner, dtype=dtype, device=device) / hidden**0.5
        self._down = torch.randn(inner, hidden, dtype=dtype, device=device) / inner**0.5
        self._layer: Callable[[], Any] = self._eager
        if graphs and device == "cuda":
            self._eager()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._eager()
            self._layer = graph.replay

    def _eager(self) -> None:
        self._rows.copy_(torch.tanh((self._rows @ self._up) @ self._down))

    def run(self, bound: RunAhead | None, every: int, stop: Callable[[], bool]) -> bool:
        """Launch the layers; whether it was stopped."""
        if bound is not None:
            bound.begin()
        for layer in range(LAYERS):
            if bound is not None and layer and layer % every == 0 and bound.at_safepoint(stop):
                return True
            self._layer()
        return False

    def wait(self) -> None:
        """For all that is launched."""
        if self.device == "cuda":
            torch.cuda.current_stream().synchronize()

    def mark(self) -> Any:
        """The end of what is launched so far."""
        if self.device != "cuda":
            return Done()
        event = torch.cuda.Event()
        event.record()
        return event


class Done:
    """Where nothing is launched ahead."""

    def query(self) -> bool:
        """Always."""
        return True


def measure(device: str, graphs: bool, every: int, crowded: bool) -> dict[str, Any]:
    """Many passes, of which another thread stops most."""
    work = Pass(device, graphs)
    free_s = seconds_of(work, None, every)
    bound_s = seconds_of(work, RunAhead(work.mark), every)
    dice, ends = random.Random(7), threading.Event()
    seen_ms: list[float] = []
    done_ms: list[float] = []
    noise = threading.Thread(target=compute, args=(ends,), daemon=True)
    if crowded:
        noise.start()
    for _ in range(PASSES):
        raised: list[float] = []

        def raise_word(after_s: float, raised: list[float] = raised) -> None:
            time.sleep(after_s)
            raised.append(time.perf_counter())

        thread = threading.Thread(target=raise_word, args=(dice.random() * bound_s,))
        thread.start()
        stopped = work.run(RunAhead(work.mark), every, partial(bool, raised))
        seen_s = time.perf_counter()
        work.wait()
        done_s = time.perf_counter()
        thread.join()
        if stopped:
            seen_ms.append(1e3 * (seen_s - raised[0]))
            done_ms.append(1e3 * (done_s - raised[0]))
    ends.set()
    return {
        "graphs": graphs,
        "layers_between": every,
        "crowded": crowded,
        "pass_ms": round(1e3 * free_s, 3),
        "bound_pass_ms": round(1e3 * bound_s, 3),
        "group_ms": round(1e3 * free_s * every / LAYERS, 3),
        "stops": len(seen_ms),
        "word_to_host_ms": shares(seen_ms),
        "word_to_device_ms": shares(done_ms),
    }


def seconds_of(work: Pass, bound: RunAhead | None, every: int) -> float:
    """The median pass that nothing stops."""
    found = []
    for _ in range(7):
        work.wait()
        begun_s = time.perf_counter()
        work.run(bound, every, lambda: False)
        work.wait()
        found.append(time.perf_counter() - begun_s)
    return sorted(found)[3]


def compute(ends: threading.Event) -> None:
    """Hold the interpreter, as the thread that reads requests may."""
    while not ends.is_set():
        sum(range(1000))


def shares(values: list[float]) -> dict[str, float]:
    """Percentiles."""
    ordered = sorted(values)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)
        for name, share in at.items()
        if ordered
    }


def main() -> None:
    """Print and keep what each way shows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda")
    args = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    rows: list[dict[str, Any]] = []
    for graphs, every, crowded in (
        (False, 1, False), (True, 1, False), (False, 4, False), (True, 4, False), (False, 1, True),
    ):  # fmt: skip
        rows.append(measure(args.device, graphs, every, crowded))
        args.out.write_text(json.dumps(rows, indent=1) + "\n")
    print("RESULTS " + json.dumps({"rows": len(rows)}))


if __name__ == "__main__":
    main()
