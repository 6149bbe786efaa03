"""How often each latency was seen, in buckets that engines, gateways and history share.

Counted by hand: a stream notes thousands of gaps, and an `observe` of a metrics library costs ten
times a look-up in a sorted list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_STEPS: Final = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)
_MAX_S: Final = 63.0

EDGES_S: Final = tuple(
    edge_s
    for power in range(-3, 2)
    for step in _STEPS
    if (edge_s := round(step * 10.0**power, 6)) <= _MAX_S
)
"""Upper ends of the buckets, 1 ms to 63 s, a quarter apart: a target is never far from an edge."""


@dataclass(slots=True)
class Distribution:
    """Latencies of one kind.

    Attributes:
        num_met: Within the target of their engine, where it says one.
        num_missed: Later than that.
        sum_s: All of them, added up.
        counts: One per bucket of `EDGES_S`, and one for what is longer.
    """

    num_met: int = 0
    num_missed: int = 0
    sum_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES_S) + 1))

    def add(self, seconds: float, target_s: float | None) -> None:
        self.counts[bisect_left(EDGES_S, seconds)] += 1
        self.sum_s += seconds
        if target_s is not None:
            if seconds <= target_s:
                self.num_met += 1
            else:
                self.num_missed += 1

    def add_all(self, latencies_s: Sequence[float], target_s: float | None) -> None:
        for seconds in latencies_s:
            self.add(seconds, target_s)

    def figures(self) -> list[float]:
        """As numbers that add up: met, missed, sum, then the counts."""
        return [self.num_met, self.num_missed, self.sum_s, *self.counts]
