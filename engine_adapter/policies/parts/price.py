"""What offline work beside online requests has to be worth."""

from __future__ import annotations

import math

from engine_adapter.core.snapshot import Snapshot

# Below this share of time without online requests, that time is too scarce to wait for.
PLENTY = 0.1
HORIZON_S = 30.0
LONGEST_STEP_S = 10.0


class HarvestPrice:
    """Least compute saved later per second by which offline rows lengthen an online step.

    A second added to the steps of online requests is a second less without them, in which offline
    work runs at its best. So while there is such time, work beside online requests has to cost no
    more there than alone: the price is 1. Where online requests are always there, waiting for a
    better moment would be waiting for ever, and the price falls to ``least``.

    Args:
        least: The price when online requests are always there.
    """

    def __init__(self, least: float) -> None:
        """Assume as much time with online requests as without."""
        self._least = least
        self._alone_share = 0.5
        self._last_s: float | None = None
        self._last_online = False

    def update(self, snapshot: Snapshot, *, has_online: bool) -> None:
        """Count the time since the last snapshot for what was there then."""
        if self._last_s is not None:
            passed_s = min(LONGEST_STEP_S, max(0.0, snapshot.now_s - self._last_s))
            weight = 1.0 - math.exp(-passed_s / HORIZON_S)
            self._alone_share += weight * ((not self._last_online) - self._alone_share)
        self._last_s = snapshot.now_s
        self._last_online = has_online

    @property
    def value(self) -> float:
        """The price now, between ``least`` and 1."""
        return self._least + (1.0 - self._least) * min(1.0, self._alone_share / PLENTY)
