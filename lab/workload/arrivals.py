"""Arrival processes, all of them repeatable: the same seed gives the same instants."""

from __future__ import annotations

import random
from collections.abc import Sequence


def gamma_arrivals(rate_per_s: float, cv: float, duration_s: float, seed: int) -> list[float]:
    """Arrivals whose gaps follow a Gamma law with coefficient of variation ``cv``.

    ``cv`` below 1 is more regular than Poisson, above 1 burstier (ConServe v2, section 6.2).

    Raises:
        ValueError: If rate, cv or duration is not positive.
    """
    if min(rate_per_s, cv, duration_s) <= 0.0:
        raise ValueError(
            f"rate, cv and duration must be positive, not {rate_per_s}, {cv}, {duration_s}"
        )
    generator = random.Random(seed)
    shape = 1.0 / (cv * cv)
    scale = 1.0 / (rate_per_s * shape)
    arrivals: list[float] = []
    at_s = generator.gammavariate(shape, scale)
    while at_s < duration_s:
        arrivals.append(at_s)
        at_s += generator.gammavariate(shape, scale)
    return arrivals


def poisson_arrivals(rate_per_s: float, duration_s: float, seed: int) -> list[float]:
    """Arrivals with exponential gaps."""
    return gamma_arrivals(rate_per_s, 1.0, duration_s, seed)


def on_off_arrivals(
    rate_per_s: float, phases_s: Sequence[float], seed: int, cv: float = 1.0
) -> list[float]:
    """Arrivals in the 1st, 3rd, 5th ... phase and none between (ConServe v1, section 6.3.1).

    Args:
        rate_per_s: Rate while on.
        phases_s: Lengths of the phases, beginning with an on phase.
        seed: Seed of the first phase; later ones use the seeds after it.
        cv: Coefficient of variation of the gaps while on.
    """
    arrivals: list[float] = []
    start_s = 0.0
    for index, length_s in enumerate(phases_s):
        if index % 2 == 0:
            phase = gamma_arrivals(rate_per_s, cv, length_s, seed + index)
            arrivals += [start_s + at_s for at_s in phase]
        start_s += length_s
    return arrivals
