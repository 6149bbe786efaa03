"""How two runs of the same requests compare, and whether a run was overloaded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from service.percentiles import percentile


@dataclass(frozen=True, slots=True)
class PairedExcess:
    """How much later the same requests were served than in the reference run.

    Attributes:
        n: Number of pairs.
        p50: Median excess.
        p90: 90th percentile of the excess.
        ci95: Bootstrap 95 % interval of ``p90``.
        p50_ci95: Bootstrap 95 % interval of ``p50``.
    """

    n: int
    p50: float
    p90: float
    ci95: tuple[float, float]
    p50_ci95: tuple[float, float]


def paired_excess(
    pairs: Sequence[tuple[float, float]], resamples: int = 2000, seed: int = 0
) -> PairedExcess | None:
    """Excess of the first over the second value of each pair.

    Args:
        pairs: ``(value, reference value)`` of the same request.
        resamples: Bootstrap resamples.
        seed: Makes the interval repeatable.
    """
    if not pairs:
        return None
    excess = [value - reference for value, reference in pairs]
    generator = random.Random(seed)
    medians: list[float] = []
    nineties: list[float] = []
    for _ in range(resamples):
        sample = sorted(generator.choices(excess, k=len(excess)))
        medians.append(percentile(sample, 0.5))
        nineties.append(percentile(sample, 0.9))
    return PairedExcess(
        n=len(excess),
        p50=percentile(excess, 0.5),
        p90=percentile(excess, 0.9),
        ci95=(percentile(nineties, 0.025), percentile(nineties, 0.975)),
        p50_ci95=(percentile(medians, 0.025), percentile(medians, 0.975)),
    )


def queue_grows(ttfts_s: Sequence[float], floor_s: float = 1.0) -> bool:
    """Whether requests late in a run waited far longer than early ones: the load is too high.

    Args:
        ttfts_s: TTFT of each request in order of arrival.
        floor_s: Growth below this is noise whatever its ratio.
    """
    third = len(ttfts_s) // 3
    if third < 3:
        return False
    early = percentile(ttfts_s[:third], 0.5)
    late = percentile(ttfts_s[-third:], 0.5)
    return late > 3.0 * early and late - early > floor_s
