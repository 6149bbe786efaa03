"""Latency targets of the online class."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slo:
    """What online requests are promised.

    Attributes:
        ttft_s: Time from arrival to the first token, in seconds.
        tbt_s: Longest gap between two tokens of one request, in seconds.
    """

    ttft_s: float
    tbt_s: float

    def __post_init__(self) -> None:
        """Refuse targets no engine could meet.

        Raises:
            ValueError: If a target is not a positive, finite number of seconds.
        """
        for name, value in (("ttft_s", self.ttft_s), ("tbt_s", self.tbt_s)):
            if not (value > 0.0 and math.isfinite(value)):
                raise ValueError(
                    f"SLO {name} is {value!r}; give a positive number of seconds, for example 0.5"
                )

    def scaled(self, factor: float) -> Slo:
        """The same targets, loosened (factor above 1) or tightened (below 1)."""
        return Slo(ttft_s=self.ttft_s * factor, tbt_s=self.tbt_s * factor)
