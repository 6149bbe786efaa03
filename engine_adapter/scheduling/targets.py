"""Latency targets of the online class."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

DEFAULT_SHARE = 0.98
"""Of the steps that shall end in time, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Slo:
    """What online requests are promised.

    Attributes:
        ttft_s: Time from arrival to the first token, in seconds.
        tbt_s: Longest gap between two tokens of one request, in seconds.
        tpot_s: Pace: from the first token on, the mean gap of a request; infinite without such a
            target.
        ttft_share: Share of the steps that shall end within what first tokens leave them.
        tbt_share: The same for gaps.
        tpot_share: The same for the pace.
    """

    ttft_s: float
    tbt_s: float
    tpot_s: float = math.inf
    ttft_share: float = DEFAULT_SHARE
    tbt_share: float = DEFAULT_SHARE
    tpot_share: float = DEFAULT_SHARE

    def __post_init__(self) -> None:
        """Refuse targets no engine could meet.

        Raises:
            ValueError: If a target is not a positive, finite number of seconds; the pace may be
                infinite.
        """
        for name, value in (("ttft_s", self.ttft_s), ("tbt_s", self.tbt_s)):
            if not (value > 0.0 and math.isfinite(value)):
                raise ValueError(
                    f"SLO {name} is {value!r}; give a positive number of seconds, for example 0.5"
                )
        if not self.tpot_s > 0.0:
            raise ValueError(f"SLO tpot_s is {self.tpot_s!r}; give a positive number of seconds")
        for name in ("ttft_share", "tbt_share", "tpot_share"):
            share = getattr(self, name)
            if not 0.5 <= share < 1.0:
                raise ValueError(f"SLO {name} is {share!r}; give at least 0.5, and less than 1")

    def scaled(self, factor: float) -> Slo:
        """The same targets, loosened (factor above 1) or tightened (below 1)."""
        return replace(
            self,
            ttft_s=self.ttft_s * factor,
            tbt_s=self.tbt_s * factor,
            tpot_s=self.tpot_s * factor,
        )
