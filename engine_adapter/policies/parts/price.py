"""What offline work beside online requests has to be worth."""

from __future__ import annotations

import math

from engine_adapter.core.snapshot import Snapshot

# Below this share of time without online requests, that time is too scarce to wait for.
PLENTY = 0.1
# A longer memory of good times would keep offline work from beside online requests for minutes
# after they have come to stay: from here the price begins to fall after half a minute.
MOST = 0.3
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
        """Assume that there is time without online requests."""
        self._least = least
        self._alone_share = MOST
        self._last_s: float | None = None
        self._last_online = False
        self._last_offline = False

    def update(self, snapshot: Snapshot, *, has_online: bool) -> None:
        """Count the time since the last snapshot for what was there then.

        Time without offline work is no time: nothing was done better in it, and nothing waited.
        """
        if self._last_s is not None and self._last_offline:
            passed_s = min(LONGEST_STEP_S, max(0.0, snapshot.now_s - self._last_s))
            weight = 1.0 - math.exp(-passed_s / HORIZON_S)
            share = self._alone_share + weight * ((not self._last_online) - self._alone_share)
            self._alone_share = min(MOST, share)
        self._last_s = snapshot.now_s
        self._last_online = has_online
        self._last_offline = bool(snapshot.offline_running or snapshot.offline_waiting)

    @property
    def value(self) -> float:
        """The price now, between ``least`` and 1."""
        return self._least + (1.0 - self._least) * min(1.0, self._alone_share / PLENTY)
