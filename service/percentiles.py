"""Percentiles of a sample, and how many values they need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_N_FOR_P99 = 300


def percentile(values: Sequence[float], share: float) -> float:
    """Percentile by linear interpolation between order statistics.

    Raises:
        ValueError: If there is no value.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:
        return ordered[low]  # also keeps infinities from becoming NaN
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of a sample. ``p99`` is None below 300 values: it would be one or two of them."""

    n: int
    p50: float
    p90: float
    p99: float | None
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution | None:
        """Summarise; None if there is nothing."""
        if not values:
            return None
        return cls(
            n=len(values),
            p50=percentile(values, 0.5),
            p90=percentile(values, 0.9),
            p99=percentile(values, 0.99) if len(values) >= MIN_N_FOR_P99 else None,
            max=max(values),
        )


def attained(values: Sequence[float], target: float) -> float | None:
    """Share of values within the target; None if there is no value."""
    if not values:
        return None
    return sum(1 for value in values if value <= target) / len(values)
